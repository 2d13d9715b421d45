//! Ballots on a real server that cannot execute all requests.

use redlock_core::admission::{AdmissionOp, AdmissionReply, Init, Nonce, Record};
use redlock_core::{Answer, Ballot, Balloted, Bid, Cause, Member, Op, Token, Verdict};
use redlock_testkit::lab::{text, value};
use redlock_testkit::{RedisServer, ServerOptions};

use crate::connection::driven::Driven;

const PREFIX: &str = "locks:";
const KEY: &[u8] = b"locks:orders:42";

/// An admitted server, and a node for it.
struct Lab {
    node: Driven,
    server: RedisServer,
}

impl Lab {
    async fn new() -> Self {
        let server = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
        let mut node = Driven::within(&server.url(), PREFIX);
        let identity = node.up().await.identity.unwrap();
        let (expect, nonce) = (Record::default().seen(), Nonce(1));
        let (max_ttl, lower, floor, level) = (60_000, false, 31, 0);
        let (converts, set, until) = (false, None, u64::MAX);
        let init =
            Init { expect, identity, nonce, max_ttl, lower, floor, level, converts, set, until };
        let said = node.admission(AdmissionOp::Init(init)).await;
        assert!(matches!(said, Ok(AdmissionReply::Script(_))), "{said:?}");
        node.admitted_as(Some(identity));
        Self { node, server }
    }

    async fn fenced(&mut self, key: &[u8], token: &Token, n: u64) -> Answer {
        self.node.ask(Op::acquire_fenced(key, token.clone(), 60_000, bid(n))).await
    }

    async fn ballot(&mut self, token: &Token, n: u64) -> Answer {
        self.node.ask(Op::ballot(KEY, token.clone(), bid(n))).await
    }

    async fn score(&mut self, token: &Token) -> Answer {
        self.node.ask(Op::score(KEY, token.clone(), bid(1).member)).await
    }

    async fn extend(&mut self, token: &Token) -> Answer {
        self.node.ask(Op::extend(KEY, token.clone(), 90_000)).await
    }

    async fn release(&mut self, token: &Token) -> Answer {
        self.node.ask(Op::release(KEY, token.clone())).await
    }

    fn run(&self, words: &[&str]) {
        self.server.command(words).unwrap();
    }

    fn ballots(&self) -> String {
        let found: Vec<String> = text(&self.server, &["KEYS", "*:ballots:*"]);
        found[0].clone()
    }
}

fn bid(n: u64) -> Bid {
    Bid { ballot: Ballot::new(n).unwrap(), member: Member::of(b"orders:42") }
}

fn token() -> Token {
    Token::random(None)
}

fn accepted() -> Answer {
    Answer::granted().with_ballot(Balloted::Accepted)
}

fn error(answer: &Answer) -> &str {
    match &answer.verdict {
        Verdict::Unknown(Cause::ErrorReply(error)) => error,
        verdict => panic!("{verdict:?}"),
    }
}

#[tokio::test]
async fn full_memory_prevents_acquiring_but_not_extending() {
    let mut lab = Lab::new().await;
    let ours = token();
    assert_eq!(lab.fenced(KEY, &ours, 1).await, accepted());
    lab.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let answer = lab.fenced(b"locks:other", &token(), 2).await;
    assert!(error(&answer).starts_with("OOM") && !answer.key_set, "{answer:?}");
    let answer = lab.ballot(&ours, 3).await;
    assert!(error(&answer).starts_with("OOM") && answer.key_set, "{answer:?}");
    assert_eq!(lab.score(&ours).await.balloted, Some(Balloted::Score(63)));
    assert_eq!(lab.extend(&ours).await, Answer::granted());
    assert_eq!(lab.release(&ours).await, Answer::granted());
    lab.run(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(lab.fenced(KEY, &token(), 2).await, accepted());
}

#[tokio::test]
async fn ballot_key_of_another_type_has_no_members() {
    let mut lab = Lab::new().await;
    let (ours, ballots) = (token(), lab.ballots());
    lab.run(&["SET", &ballots, "a stranger's"]);
    let back = Op::give_back(*b"locks:other", ours.clone(), 60_000, bid(1).member);
    for answer in [
        lab.fenced(KEY, &ours, 1).await,
        lab.ballot(&ours, 2).await,
        lab.score(&ours).await,
        lab.node.ask(back).await,
    ] {
        assert!(answer.balloted == Some(Balloted::NoMember) && answer.key_set, "{answer:?}");
    }
    assert_eq!(value(&lab.server, "locks:orders:42").as_deref(), Some(ours.as_str()));
}

#[tokio::test]
async fn ballots_are_accepted_without_the_right_to_scores() {
    let mut lab = Lab::new().await;
    let ours = token();
    lab.run(&["ACL", "SETUSER", "default", "-zscore"]);
    assert_eq!(lab.fenced(KEY, &ours, 1).await, accepted());
    assert_eq!(lab.ballot(&ours, 2).await, accepted());
    for answer in [lab.ballot(&ours, 2).await, lab.score(&ours).await] {
        assert!(error(&answer).starts_with("NOPERM") && answer.key_set, "{answer:?}");
    }
}

#[tokio::test]
async fn missing_access_to_ballot_keys_is_reported() {
    let lab = Lab::new().await;
    let rights = ["~locks:orders*", "~locks:redlock-quorum:1", "+@all"];
    lab.run(&[&["ACL", "SETUSER", "few", "on", ">secret"], &rights[..]].concat());
    let url = format!("redis://few:secret@{}", lab.server.name());
    let mut node = Driven::within(&url, PREFIX);
    let facts = node.up().await;
    assert!(facts.no_ballots.unwrap().starts_with("NOPERM"));
    let run = facts.record.unwrap().run;
    assert!(run.is_some());
    node.admitted_as(run);
    let answer = node.ask(Op::acquire_fenced(KEY, token(), 60_000, bid(1))).await;
    assert!(error(&answer).starts_with("NOPERM") && answer.key_set, "{answer:?}");
}

#[tokio::test]
async fn forgotten_scripts_do_not_affect_ballots() {
    let mut lab = Lab::new().await;
    let ours = token();
    assert_eq!(lab.fenced(KEY, &ours, 1).await, accepted());
    assert_eq!(lab.extend(&ours).await, Answer::granted());
    lab.run(&["SCRIPT", "FLUSH"]);
    assert_eq!(lab.ballot(&ours, 2).await, accepted());
    assert_eq!(lab.extend(&ours).await, Answer::granted());
    assert_eq!(lab.release(&ours).await, Answer::granted());
    lab.run(&["SCRIPT", "FLUSH"]);
    assert_eq!(lab.fenced(KEY, &ours, 3).await, accepted());
}

/// Neither the test for ballot support nor a ballot for a missing set creates a key.
#[tokio::test]
async fn ballots_create_no_keys() {
    let server = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
    let mut node = Driven::within(&server.url(), PREFIX);
    assert_eq!(node.up().await.no_ballots, None);
    assert_eq!(text::<u32>(&server, &["DBSIZE"]), 0);
    let mut lab = Lab::new().await;
    lab.run(&["FLUSHALL"]);
    let answer = lab.fenced(KEY, &token(), 1).await;
    assert_eq!(answer, Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Refused));
    assert_eq!(text::<u32>(&lab.server, &["DBSIZE"]), 1, "only the lock's own key");
}
