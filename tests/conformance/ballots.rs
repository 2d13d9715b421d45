//! The effect of ballots and of queries for a score on every node.

use redlock_core::admission::{Outcome, Record};
use redlock_core::{Ballot, Balloted, Bid, Member, WhyNot};

use super::*;

/// The score of every member after [`Asker::admitted`].
pub(super) const FLOOR: u64 = 31;

pub(super) fn member() -> Member {
    Member::of(KEY)
}

pub(super) fn bid(n: u64) -> Bid {
    Bid { ballot: Ballot::new(n).unwrap(), member: member() }
}

pub(super) fn score(n: u64) -> u64 {
    bid(n).ballot.score()
}

pub(super) fn accepted() -> Answer {
    Answer::granted().with_ballot(Balloted::Accepted)
}

pub(super) fn refused() -> Answer {
    Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Refused)
}

pub(super) fn at(score: u64) -> Answer {
    Answer::granted().with_ballot(Balloted::Score(score))
}

/// An answer that is unknown because of the master's ballots, while the key is there.
pub(super) fn unfit(why: WhyNot, balloted: Option<Balloted>, answer: &Answer) -> bool {
    why_not(answer) == Some(why) && answer.key_set && answer.sent && answer.balloted == balloted
}

pub(super) fn why_not(answer: &Answer) -> Option<WhyNot> {
    match &answer.verdict {
        Verdict::Unknown(Cause::NotAdmitted(not_admitted)) => Some(not_admitted.why),
        _ => None,
    }
}

impl Asker {
    /// Queries a master that was admitted over this connection.
    pub(super) async fn admitted(backend: &Backend) -> Self {
        let mut node = Self::new(backend).await;
        let reply = node.init(&Record::default(), FLOOR, 0).await;
        assert!(reply.record.admits(node.facts.identity.unwrap()));
        node.node.set_admitted(reply.record.run);
        node
    }

    pub(super) async fn fenced(&mut self, token: &Token, n: u64) -> Answer {
        self.ask(Op::acquire_fenced(KEY, token.clone(), LONG, bid(n))).await
    }

    pub(super) async fn ballot(&mut self, token: &Token, n: u64) -> Answer {
        self.ask(Op::ballot(KEY, token.clone(), bid(n))).await
    }

    pub(super) async fn score(&mut self, token: &Token) -> Answer {
        self.ask(Op::score(KEY, token.clone(), member())).await
    }

    async fn give_back(&mut self, token: &Token) -> Answer {
        self.ask(Op::give_back(KEY, token.clone(), LONG, member())).await
    }
}

#[tokio::test]
async fn refused_ballot_leaves_the_key() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, theirs) = tokens();
        assert_eq!(node.fenced(&ours, 5).await, accepted());
        assert!(held_by(&ours, &node.inspect().await));
        assert_eq!(node.release(&ours).await, Answer::granted());
        for n in [5, 4] {
            assert_eq!(node.fenced(&theirs, n).await, refused(), "it is not larger");
            assert!(held_by(&theirs, &node.inspect().await));
            assert_eq!(node.release(&theirs).await, Answer::granted());
        }
        assert_eq!(node.fenced(&theirs, 6).await, accepted());
        assert_eq!(node.score(&theirs).await, at(score(6)));
    }
}

#[tokio::test]
async fn ballot_with_a_refused_key_only_raises_the_score() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, theirs) = tokens();
        assert_eq!(node.fenced(&ours, 1).await, accepted());
        for n in [0, 7] {
            assert_eq!(node.fenced(&theirs, n).await, taken());
        }
        assert_eq!(node.fenced(&ours, 8).await, taken(), "the same token is refused as well");
        assert_eq!(node.score(&ours).await, at(score(8)));
        assert!(held_by(&ours, &node.inspect().await));
    }
}

#[tokio::test]
async fn second_ballot_is_accepted_or_answered_with_the_score() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, theirs) = tokens();
        assert_eq!(node.fenced(&theirs, 5).await, accepted());
        node.release(&theirs).await;
        assert_eq!(node.fenced(&ours, 3).await, refused());
        let low = Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Score(score(5)));
        assert_eq!(node.ballot(&ours, 5).await, low);
        assert_eq!(node.ballot(&ours, 6).await, accepted());
        assert_eq!(node.score(&ours).await, at(score(6)));
    }
}

#[tokio::test]
async fn second_ballot_for_a_lost_key_is_not_accepted() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, theirs) = tokens();
        node.fenced(&ours, 1).await;
        node.release(&ours).await;
        assert_eq!(node.ballot(&ours, 2).await, not_ours());
        node.acquire(&theirs, LONG).await;
        assert_eq!(node.ballot(&ours, 3).await, not_ours());
        node.release(&theirs).await;
        backend.put_other_type(KEY, LONG).await;
        assert_eq!(node.ballot(&ours, 4).await, not_ours());
        assert_eq!(
            node.fenced(&ours, 5).await,
            taken(),
            "a key of another type belongs to another program"
        );
    }
}

#[tokio::test]
async fn readd_reports_the_score_and_replaces_no_held_key() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, theirs) = tokens();
        assert_eq!(node.give_back(&ours).await, at(FLOOR));
        assert!(held_by(&ours, &node.inspect().await));
        assert!(node.left().await > Duration::from_millis(LONG / 2));
        assert_eq!(node.give_back(&theirs).await, taken());
        node.release(&ours).await;
        assert_eq!(node.fenced(&theirs, 9).await, accepted());
        node.release(&theirs).await;
        assert_eq!(node.give_back(&ours).await, at(score(9)));
    }
}

#[tokio::test]
async fn only_resources_sharing_a_member_share_its_score() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, theirs) = tokens();
        let name = |number: u32| format!("other:{number}").into_bytes();
        let twin = (0..).map(name).find(|name| Member::of(name) == member()).unwrap();
        let other = Bid { ballot: bid(2).ballot, member: Member::of(b"another") };
        assert_ne!(other.member, member());
        assert_eq!(node.fenced(&ours, 3).await, accepted());
        let acquire = |key: &[u8], bid| Op::acquire_fenced(key, theirs.clone(), LONG, bid);
        assert_eq!(node.ask(acquire(&twin, bid(2))).await, refused());
        assert_eq!(node.ask(acquire(b"another", other)).await, accepted());
    }
}

#[tokio::test]
async fn missing_member_accepts_nothing_and_reports_lost_data() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, theirs) = tokens();
        backend.remove_member(member()).await;
        assert_eq!(node.fenced(&ours, 5).await, refused());
        assert!(node.events.try_recv().is_err(), "it may be a ballot that is not larger");
        let gone = |answer: Answer| unfit(WhyNot::Incomplete, Some(Balloted::NoMember), &answer);
        assert!(gone(node.ballot(&ours, 6).await));
        assert_eq!(node.event().await, NodeEvent::DataLost);
        assert!(gone(node.score(&ours).await));
        assert_eq!(node.event().await, NodeEvent::DataLost);
        assert_eq!(node.give_back(&theirs).await, taken());
        node.release(&ours).await;
        assert!(gone(node.give_back(&theirs).await));
        assert_eq!(node.event().await, NodeEvent::DataLost);
        assert!(held_by(&theirs, &node.inspect().await), "the key is still set");
    }
}

#[tokio::test]
async fn missing_ballot_set_accepts_nothing() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, _) = tokens();
        backend.flush().await;
        if node.facts.tracks {
            assert_eq!(node.event().await, NodeEvent::DataLost);
        }
        assert_eq!(node.fenced(&ours, 5).await, refused());
        let answer = node.ballot(&ours, 6).await;
        assert!(unfit(WhyNot::Incomplete, Some(Balloted::NoMember), &answer), "{answer:?}");
        assert_eq!(node.event().await, NodeEvent::DataLost);
        assert_eq!(node.read_record().await, (Record::default(), Some(0)));
        let answer = node.ballot(&ours, 7).await;
        assert_eq!(why_not(&answer), Some(WhyNot::Incomplete), "a look hides no loss");
        assert_eq!(node.event().await, NodeEvent::DataLost);
        node.node.set_admitted(None);
        assert_eq!(why_not(&node.ballot(&ours, 8).await), Some(WhyNot::AskedTooEarly));
    }
}

#[tokio::test]
async fn impossible_score_is_foreign() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, theirs) = tokens();
        backend.raise_beyond(member()).await;
        assert_eq!(node.fenced(&ours, 5).await, refused());
        let foreign =
            |answer: Answer| unfit(WhyNot::ScoreTooLarge, Some(Balloted::Foreign), &answer);
        assert!(foreign(node.ballot(&ours, 6).await));
        assert!(foreign(node.score(&ours).await));
        node.release(&ours).await;
        assert!(foreign(node.give_back(&theirs).await));
        assert!(node.events.try_recv().is_err(), "its data is not lost");
    }
}

#[tokio::test]
async fn non_admitted_master_gets_only_the_key() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::new(&backend).await;
        let (ours, theirs) = tokens();
        let early = |answer: Answer| unfit(WhyNot::AskedTooEarly, None, &answer);
        assert!(early(node.fenced(&ours, 5).await));
        assert!(held_by(&ours, &node.inspect().await));
        assert_eq!(node.fenced(&theirs, 6).await, taken());
        assert_eq!(node.give_back(&theirs).await, taken());
        for answer in [node.ballot(&ours, 7).await, node.score(&ours).await] {
            assert_eq!((why_not(&answer), answer.sent), (Some(WhyNot::AskedTooEarly), false));
        }
        node.release(&ours).await;
        assert!(early(node.give_back(&theirs).await));

        let admitted = node.init(&Record::default(), FLOOR, 0).await.record;
        assert!(!node.score(&theirs).await.sent, "the client does not know of its admission");
        node.node.set_admitted(admitted.run);
        assert_eq!(node.score(&theirs).await, at(FLOOR));
        assert_eq!(node.ballot(&theirs, 5).await, accepted());
    }
}

#[tokio::test]
async fn quarantine_removes_the_ballots() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, _) = tokens();
        backend.remove_member(member()).await;
        let record = node.read_record().await.0;
        let begun = node.begin(&record, 5).await.record;
        assert_eq!(begun.quarantine.map(|quarantine| quarantine.ballot), Some(FLOOR));
        assert_eq!(node.fenced(&ours, 5).await, refused());
        let answer = node.score(&ours).await;
        assert!(unfit(WhyNot::Incomplete, Some(Balloted::NoMember), &answer), "{answer:?}");
    }
}

#[tokio::test]
async fn without_quarantine_one_ballot_set_needs_no_admission() {
    let backend = Backend::without_quarantine().await;
    let mut node = Asker::new(&backend).await;
    let (ours, theirs) = tokens();
    assert_eq!(node.give_back(&theirs).await, at(0), "it has accepted nothing so far");
    node.release(&theirs).await;
    assert_eq!(node.fenced(&ours, 5).await, accepted());
    node.release(&ours).await;
    assert_eq!(node.fenced(&theirs, 5).await, refused());
    let low = Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Score(score(5)));
    assert_eq!(node.ballot(&theirs, 4).await, low);
    assert_eq!(node.ballot(&theirs, 6).await, accepted());
    assert_eq!(node.score(&theirs).await, at(score(6)));
    let converted = node.init(&Record::default(), FLOOR, 0).await;
    assert_eq!((converted.outcome, converted.record.floor), (Outcome::Done, Some(score(6))));
}

#[tokio::test]
async fn master_refusing_ballots_is_reported_on_connection() {
    for backend in Backend::of_each_protocol().await {
        let node = Asker::admitted(&backend).await;
        assert_eq!(node.facts.no_ballots, None);
        drop(node);
        backend.refuse_ballots().await;
        let mut node = Asker::new(&backend).await;
        node.node.set_admitted(node.facts.identity);
        let no_ballots = node.facts.no_ballots.clone().expect("it is asked");
        assert!(no_ballots.starts_with("NOPERM"), "{no_ballots}");
        let (ours, theirs) = tokens();
        let answer = node.fenced(&ours, 5).await;
        assert!(matches!(&answer.verdict, Verdict::Unknown(Cause::ErrorReply(_))), "{answer:?}");
        assert!(answer.key_set && held_by(&ours, &node.inspect().await));
        assert_eq!(node.fenced(&theirs, 6).await, taken());
        assert_eq!(node.extend(&ours, 2 * LONG).await, Answer::granted());
        let answer = node.ballot(&ours, 7).await;
        assert!(answer.key_set && matches!(answer.verdict, Verdict::Unknown(_)), "{answer:?}");
        assert_eq!(node.release(&ours).await, Answer::granted());
    }
}

#[tokio::test]
async fn requests_of_several_commands_keep_their_order_among_others() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, theirs) = tokens();
        let mut expected = Vec::new();
        for n in 1..50 {
            let fenced = |token: &Token, n| Op::acquire_fenced(KEY, token.clone(), LONG, bid(n));
            for (op, answer) in [
                (fenced(&ours, 3 * n), accepted()),
                (fenced(&theirs, 3 * n + 1), taken()),
                (Op::score(KEY, ours.clone(), member()), at(score(3 * n + 1))),
                (Op::ballot(KEY, ours.clone(), bid(3 * n + 2)), accepted()),
                (Op::inspect(KEY), Answer::new(Verdict::Free)),
                (Op::release(KEY, ours.clone()), Answer::granted()),
                (Op::give_back(KEY, ours.clone(), LONG, member()), at(score(3 * n + 2))),
                (Op::release(KEY, ours.clone()), Answer::granted()),
            ] {
                node.submit(expected.len() as u128, op);
                expected.push(answer);
            }
        }
        for (ticket, expected) in expected.into_iter().enumerate() {
            let vote = node.vote().await;
            assert_eq!(vote.ticket, ticket as u128);
            match vote.answer.verdict {
                Verdict::Held { token: Some(_), .. } => assert_eq!(expected.verdict, Verdict::Free),
                _ => assert_eq!(vote.answer, expected, "{ticket}"),
            }
        }
    }
}
