//! Foreign data that a script meets, and actions that it has no right to.

use redlock_core::admission::Outcome;
use redlock_core::{Answer, Ballot, Balloted, Bid, Op, Token, Unread};

use super::*;

/// Never late.
const UNTIL: Millis = Millis::MAX;

/// The order that admits a master without a record.
fn init(identity: Identity) -> AdmissionOp {
    let (expect, nonce) = (Record::default().seen(), Nonce(1));
    let (max_ttl, lower, floor, level) = (1_000, false, 31, 0);
    let (converts, until) = (false, UNTIL);
    AdmissionOp::Init(Init {
        expect,
        identity,
        nonce,
        max_ttl,
        lower,
        floor,
        level,
        converts,
        set: None,
        until,
    })
}

fn end(identity: Identity) -> Admit {
    let (nonce, way, set) = (Nonce(1), Way::Known, None);
    Admit { nonce, identity, way, floor: 31, set, until: UNTIL }
}

fn begin(record: &Record, identity: Identity) -> AdmissionOp {
    let (expect, nonce, max_ttl) = (record.seen(), Nonce(2), 1_000);
    let (is_outdated, until) = (false, UNTIL);
    AdmissionOp::Begin(Begin { expect, identity, nonce, max_ttl, is_outdated, until })
}

/// All keys with their contents, in an order that does not change.
fn dump(lab: &mut Lab) -> Vec<(String, Vec<u8>)> {
    let mut keys: Vec<String> = lab.run(&["KEYS", "*"]);
    keys.sort_unstable();
    keys.into_iter().map(|key| (key.clone(), lab.run(&["DUMP", &key]))).collect()
}

#[tokio::test]
async fn key_of_another_type_is_named_and_kept() {
    let identity = identities()[0];
    let admitted = Record { run: Some(identity), max_ttl: Some(1_000), ..Record::default() };
    let quarantine = Quarantine { id: identity, until: 0, ballot: 0, notes: Vec::new() };
    let waiting = Record {
        quarantine: Some(quarantine),
        nonce: Some(Nonce(1)),
        max_ttl: Some(1_000),
        ..Record::default()
    };
    let end = end(identity);
    let AdmissionOp::Init(first) = init(identities()[3]) else { panic!("an init") };
    let over = AdmissionOp::Init(Init { expect: waiting.seen(), ..first });
    let mut lab = Lab::new().await;
    let set = set_key(identity);
    for (record, foreign, order) in [
        (Record::default(), RECORD, init(identity)),
        (Record::default(), RECORD, begin(&Record::default(), identity)),
        (Record::default(), OFF, init(identity)),
        (Record::default(), set.as_str(), init(identity)),
        (Record::default(), set.as_str(), begin(&Record::default(), identity)),
        (admitted.clone(), set.as_str(), begin(&admitted, identities()[3])),
        (waiting.clone(), set.as_str(), AdmissionOp::Admit(end)),
        (waiting.clone(), set.as_str(), over),
        (
            waiting,
            OFF,
            AdmissionOp::Note(Note {
                nonce: Nonce(1),
                times: vec![(identity.run, 1)],
                until: UNTIL,
            }),
        ),
    ] {
        lab.set(&Data { record, ..Data::default() });
        let _: () = lab.run(&["SET", foreign, "a stranger's"]);
        let before = dump(&mut lab);
        let said = lab.node.admission(order.clone()).await.expect_err("it is refused").to_string();
        assert!(said.contains("WRONGTYPE") && said.contains(foreign), "{said}");
        assert_eq!(dump(&mut lab), before, "{order:?}");
    }
}

#[tokio::test]
async fn foreign_members_and_scores_are_harmless() {
    let mut lab = Lab::new().await;
    let (identity, other) = (identities()[0], identities()[3]);
    let set = set_key(identity);
    let _: () =
        lab.run(&["ZADD", &set, "9007199254740992", "7", "1.5", "x", "63", "8", "-inf", "9"]);
    let scores = lab.node.admission(AdmissionOp::ReadScores(Some(identity))).await;
    assert!(matches!(scores, Ok(AdmissionReply::Scores { highest: Some(63), .. })), "{scores:?}");
    // *Begin* keeps the largest that is ours, and *init* writes exactly its own members.
    let record = Record { run: Some(identity), ..Record::default() };
    let _: () = lab.run(&["HSET", RECORD, "run", &identity.to_string()]);
    let begun = lab.script(begin(&record, other)).await;
    assert_eq!(begun.record.quarantine.map(|found| found.ballot), Some(63));
    assert_eq!(lab.run::<u32>(&["EXISTS", &set]), 0);
    let _: () = lab.run(&["DEL", RECORD]);
    let _: () = lab.run(&["ZADD", &set, "1.5", "x"]);
    assert_eq!(lab.script(init(identity)).await.members, MEMBERS);
    let alike: u32 = lab.run(&["ZCOUNT", &set, "31", "31"]);
    assert_eq!(alike, MEMBERS);
    let ends: Vec<Option<f64>> =
        ["0", "1023", "1024"].map(|member| lab.run(&["ZSCORE", &set, member])).into();
    assert_eq!(ends, [Some(31.0), Some(31.0), None]);
}

#[tokio::test]
async fn largest_score_is_rounded_up_and_not_negative() {
    let mut lab = Lab::new().await;
    let (identity, other) = (identities()[0], identities()[3]);
    let record = Record { run: Some(identity), ..Record::default() };
    for (score, ballot) in [("63.5", 64), ("-5", 0)] {
        let _: () = lab.run(&["FLUSHALL"]);
        let _: () = lab.run(&["ZADD", &set_key(identity), score, "7"]);
        let _: () = lab.run(&["HSET", RECORD, "run", &identity.to_string()]);
        let begun = lab.script(begin(&record, other)).await;
        assert_eq!(begun.record.quarantine.map(|found| found.ballot), Some(ballot), "{score}");
    }
}

#[tokio::test]
async fn level_raises_every_lower_member() {
    let mut lab = Lab::new().await;
    let identity = identities()[0];
    let admitted = lab.script(init(identity)).await.record;
    let set = set_key(identity);
    let _: () = lab.run(&["ZADD", &set, "127", "5"]);
    let AdmissionOp::Init(first) = init(identity) else { panic!("an init") };
    let lift = Init { expect: admitted.seen(), level: 95, ..first };
    assert_eq!(lab.script(AdmissionOp::Init(lift)).await.record, admitted);
    let lifted: u32 = lab.run(&["ZCOUNT", &set, "95", "95"]);
    assert_eq!(lifted, MEMBERS - 1);
    assert_eq!(lab.run::<f64>(&["ZSCORE", &set, "5"]), 127.0);
}

/// The largest ballot of one member applies to all, because its lock is not known.
#[tokio::test]
async fn conversion_raises_members_to_the_largest_former_ballot() {
    let mut lab = Lab::new().await;
    let identity = identities()[0];
    let admitted = lab.script(init(identity)).await.record;
    let AdmissionOp::Init(first) = init(identity) else { panic!("an init") };
    let _: () = lab.run(&["ZADD", OFF, "63", "5", "4095", "6"]);
    let converts = Init { expect: admitted.seen(), converts: true, ..first };
    assert_eq!(lab.script(AdmissionOp::Init(converts)).await.record, admitted);
    assert_eq!(lab.run::<u32>(&["ZCOUNT", &set_key(identity), "4095", "4095"]), MEMBERS);

    let _: () = lab.run(&["ZADD", OFF, "63", "5", "8191", "6"]);
    let remove = Remove { expect: admitted.seen(), start: Some(63), until: UNTIL };
    assert_eq!(lab.script(AdmissionOp::Remove(remove)).await.record, Record::default());
    assert_eq!(lab.run::<u32>(&["ZCOUNT", OFF, "8191", "8191"]), MEMBERS);
}

#[tokio::test]
async fn malformed_record_is_named_and_kept() {
    let mut lab = Lab::new().await;
    let identity = identities()[0];
    let _: () = lab.run(&["HSET", RECORD, "max_ttl", "many"]);
    let before = dump(&mut lab);
    let Ok(AdmissionReply::Facts { facts, .. }) = lab.node.admission(AdmissionOp::ReadFacts).await
    else {
        panic!("the facts")
    };
    assert_eq!(facts.record, Err(Unread::Malformed("max_ttl".into())));
    for order in [init(identity), begin(&Record::default(), identity)] {
        let said = lab.node.admission(order).await.expect_err("it is refused").to_string();
        assert!(said.contains("max_ttl"), "{said}");
    }
    assert_eq!(dump(&mut lab), before);
}

/// The fields of a quarantine appear and disappear together.
#[tokio::test]
async fn incomplete_quarantine_is_named_and_kept() {
    let mut lab = Lab::new().await;
    let (identity, other) = (identities()[0], identities()[3]);
    let quarantine = Quarantine { id: identity, until: 1, ballot: 1, notes: Vec::new() };
    let record = Record { quarantine: Some(quarantine), ..Record::default() };
    let AdmissionOp::Init(first) = init(other) else { panic!("an init") };
    let again = AdmissionOp::Init(Init { expect: record.seen(), ..first });
    for (missing, present) in [("q:until", "q:ballot"), ("q:ballot", "q:until")] {
        let _: () = lab.run(&["DEL", RECORD]);
        let id = identity.to_string();
        let _: () = lab.run(&["HSET", RECORD, "q:id", &id, present, "1", "max_ttl", "1000"]);
        let before = dump(&mut lab);
        for order in [again.clone(), begin(&record, other)] {
            let said = lab.node.admission(order).await.expect_err("it is refused").to_string();
            assert!(said.contains("malformed") && said.contains(missing), "{said}");
        }
        assert_eq!(dump(&mut lab), before);
    }
}

#[tokio::test]
async fn script_writes_nothing_with_full_memory() {
    let mut lab = Lab::new().await;
    let _: () = lab.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let identity = identities()[0];
    for order in [init(identity), begin(&Record::default(), identity)] {
        let said = lab.node.admission(order).await.expect_err("it is refused").to_string();
        assert!(said.contains("OOM"), "{said}");
    }
    assert_eq!(dump(&mut lab), []);
}

/// A node of a user with these rights.
async fn with(rights: &[&str]) -> (RedisServer, Driven) {
    let server = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
    let words = [&["ACL", "SETUSER", "few", "on", ">secret"], rights].concat();
    server.command(&words).unwrap();
    let node = Driven::within(&format!("redis://few:secret@{}", server.name()), PREFIX);
    (server, node)
}

/// A node of a user that may do everything but this.
async fn without(right: &str) -> (RedisServer, Driven) {
    with(&["~*", "+@all", &format!("-{right}")]).await
}

#[tokio::test]
async fn inaccessible_keys_are_named_as_a_missing_right() {
    let (_server, mut node) = with(&["~other:*", "+@all"]).await;
    let unread = node.up().await.record.unwrap_err().to_string();
    assert!(unread.contains("NOPERM"), "{unread}");
    // The user can read the record, but not its ballot sets.
    let (_server, mut node) = with(&["~locks:redlock-quorum:1", "+@all"]).await;
    let identity = node.up().await.identity.unwrap();
    let refused = node.admission(init(identity)).await.unwrap_err();
    assert!(refused.to_string().contains("NOPERM") && !refused.is_curable(), "{refused}");
}

/// Orders of every kind, each on data to which it writes.
fn writing_orders() -> Vec<(Data, AdmissionOp)> {
    let (identity, other) = (identities()[0], identities()[3]);
    let set = |id| vec![(id, Ballots::new(MEMBERS, 31))];
    let admitted = Record { run: Some(identity), max_ttl: Some(1_000), ..Record::default() };
    let quarantine = Quarantine { id: identity, until: 0, ballot: 0, notes: Vec::new() };
    let waiting = Record {
        quarantine: Some(quarantine),
        nonce: Some(Nonce(1)),
        max_ttl: Some(1_000),
        ..Record::default()
    };
    let AdmissionOp::Init(first) = init(identity) else { panic!("an init") };
    let again = |record: &Record, identity| {
        AdmissionOp::Init(Init {
            expect: record.seen(),
            identity,
            max_ttl: 2_000,
            level: 63,
            ..first.clone()
        })
    };
    let end = end(identity);
    let data = |record: &Record, sets| Data { record: record.clone(), sets, ..Data::default() };
    vec![
        (Data::default(), init(identity)),
        (data(&admitted, set(identity)), begin(&admitted, other)),
        (data(&admitted, set(identity)), again(&admitted, identity)),
        (data(&admitted, set(identity)), again(&admitted, other)),
        (data(&waiting, Vec::new()), again(&waiting, identity)),
        (data(&waiting, set(other)), AdmissionOp::Admit(end)),
    ]
}

#[tokio::test]
async fn missing_right_leaves_nothing_half_written() {
    let mut lab = Lab::new().await;
    for right in ["hset", "hdel", "zadd", "zcard", "del", "time"] {
        for (data, order) in writing_orders() {
            lab.set(&data);
            let before = dump(&mut lab);
            let _: () = lab.run(&["ACL", "SETUSER", "default", &format!("-{right}")]);
            let said = lab.node.admission(order.clone()).await;
            let _: () = lab.run(&["ACL", "SETUSER", "default", &format!("+{right}")]);
            assert!(said.is_err(), "without {right}: {order:?}");
            assert_eq!(dump(&mut lab), before, "without {right}: {order:?}");
            // With it, there is something to write.
            assert!(matches!(lab.script(order).await.outcome, Outcome::Done));
            assert_ne!(dump(&mut lab), before);
        }
    }
}

/// A conversion writes the ballots and then deletes: it does both or neither.
#[tokio::test]
async fn conversion_without_a_right_leaves_nothing_half_written() {
    let identity = identities()[0];
    let record = Record { run: Some(identity), max_ttl: Some(1_000), ..Record::default() };
    let order =
        AdmissionOp::Remove(Remove { expect: record.seen(), start: Some(63), until: UNTIL });
    let sets = vec![(identity, Ballots::new(MEMBERS, 31))];
    let data = Data { record, sets, ..Data::default() };
    let mut lab = Lab::new().await;
    for right in ["zadd", "del", "zcard", "time"] {
        lab.set(&data);
        let before = dump(&mut lab);
        let _: () = lab.run(&["ACL", "SETUSER", "default", &format!("-{right}")]);
        let said = lab.node.admission(order.clone()).await;
        let _: () = lab.run(&["ACL", "SETUSER", "default", &format!("+{right}")]);
        assert!(said.is_err(), "without {right}");
        assert_eq!(dump(&mut lab), before, "without {right}");
        assert!(matches!(lab.script(order.clone()).await.outcome, Outcome::Done));
    }
}

/// The rights that the documentation of `RedisNode` lists are enough.
#[tokio::test]
async fn documented_rights_are_enough() {
    let listed = "+eval +hgetall +hset +hdel +zadd +zcard +zrevrangebyscore +del +time \
                  +zscore +set +evalsha +get +pttl +pexpire +info +client|id +client|kill";
    let rights: Vec<_> = ["~locks:*"].into_iter().chain(listed.split_whitespace()).collect();
    let (_server, mut node) = with(&rights).await;
    let identity = node.up().await.identity.unwrap();
    let begun = node.admission(begin(&Record::default(), identity)).await.unwrap();
    let AdmissionReply::Script(Reply { record, .. }) = begun else { panic!("{begun:?}") };
    let note = Note { nonce: record.nonce.unwrap(), times: vec![(identity.run, 1)], until: UNTIL };
    node.admission(AdmissionOp::Note(note)).await.unwrap();
    let AdmissionOp::Init(first) = init(identity) else { panic!("an init") };
    node.admission(AdmissionOp::Init(Init { expect: record.seen(), ..first })).await.unwrap();
    let acquire = Op::acquire(*b"locks:k", Token::random(None), 1_000);
    assert_eq!(node.ask(acquire).await, Answer::granted());
    node.admitted_as(Some(identity));
    node.admission(AdmissionOp::ReadFacts).await.unwrap();
    node.admission(AdmissionOp::ReadScores(Some(identity))).await.unwrap();
    let (ours, member) = (Token::random(None), Member::of(b"j"));
    let bid = Bid { ballot: Ballot::new(9).unwrap(), member };
    let accepted = Answer::granted().with_ballot(Balloted::Accepted);
    let fenced = Op::acquire_fenced(*b"locks:j", ours.clone(), 1_000, bid);
    assert_eq!(node.ask(fenced).await, accepted);
    let score = Answer::granted().with_ballot(Balloted::Score(bid.ballot.score()));
    assert_eq!(node.ask(Op::score(*b"locks:j", ours, member)).await, score);
}

#[tokio::test]
async fn missing_right_is_named_immediately() {
    let denied = |error: String| error.contains("NOPERM");
    let (_server, mut node) = without("info").await;
    assert!(denied(node.down().await.0.to_string()));
    let (_server, mut node) = without("hgetall").await;
    let unread = node.up().await.record.unwrap_err();
    assert!(matches!(unread, Unread::Refused(_)) && denied(unread.to_string()), "{unread}");
    for right in ["eval", "hset", "hdel", "zadd", "zcard", "zrevrangebyscore", "del", "time"] {
        let (server, mut node) = without(right).await;
        let identity = node.up().await.identity.unwrap();
        let mut refused = String::new();
        for order in [begin(&Record::default(), identity), init(identity)] {
            server.command(&["FLUSHALL"]).unwrap();
            if let Err(cause) = node.admission(order).await {
                assert!(!cause.is_curable(), "{cause}");
                refused += &cause.to_string().to_lowercase();
            }
        }
        assert!(refused.contains("noperm") && refused.contains(right), "{right}: {refused}");
    }
}
