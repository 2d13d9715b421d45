//! The effect of a ballot for a resumed lease on every node.

use redlock_core::admission::Record;
use redlock_core::{Ballot, Balloted, Bid, Member, WhyNot};

use super::ballots::{FLOOR, accepted, at, bid, member, score, unfit, why_not};
use super::*;

fn refused_at(n: u64) -> Answer {
    Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Score(score(n)))
}

impl Asker {
    async fn resume(&mut self, token: &Token, px: u64, n: u64) -> Answer {
        self.ask(Op::resume(KEY, token.clone(), px, bid(n))).await
    }
}

#[tokio::test]
async fn resume_extends_and_proposes_if_the_key_is_ours() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, _) = tokens();
        assert_eq!(node.fenced(&ours, 5).await, accepted());
        assert_eq!(node.resume(&ours, 2 * LONG, 6).await, accepted());
        assert!(node.left().await > Duration::from_millis(LONG));
        assert_eq!(node.score(&ours).await, at(score(6)));
        assert_eq!(node.resume(&ours, LONG, 7).await, accepted());
        assert!(node.left().await > Duration::from_millis(LONG), "it never shortens");
    }
}

#[tokio::test]
async fn ballot_refused_by_a_resume_has_the_score() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, _) = tokens();
        assert_eq!(node.fenced(&ours, 5).await, accepted());
        for n in [5, 4] {
            assert_eq!(node.resume(&ours, 2 * LONG, n).await, refused_at(5), "it is not larger");
        }
        assert!(node.left().await > Duration::from_millis(LONG), "it is still extended");
        assert_eq!(node.score(&ours).await, at(score(5)));
    }
}

#[tokio::test]
async fn resume_writes_nothing_if_the_key_is_foreign() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, theirs) = tokens();
        assert_eq!(node.resume(&ours, LONG, 5).await, not_ours());
        node.assert_free().await;
        node.acquire(&theirs, LONG).await;
        let answer = node.resume(&ours, 2 * LONG, 6).await;
        assert!(held_by(&theirs, &answer), "{answer:?}");
        assert!(node.left().await <= Duration::from_millis(LONG));
        node.release(&theirs).await;
        backend.put_other_type(KEY, LONG).await;
        assert_eq!(holder(&node.resume(&ours, 2 * LONG, 7).await).0, None);
        assert_eq!(node.score(&ours).await, at(FLOOR));
    }
}

#[tokio::test]
async fn resume_needs_a_member_with_a_valid_score() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, _) = tokens();
        node.acquire(&ours, LONG).await;
        backend.raise_beyond(member()).await;
        let answer = node.resume(&ours, LONG, 5).await;
        assert!(unfit(WhyNot::ScoreTooLarge, Some(Balloted::Foreign), &answer), "{answer:?}");
        backend.remove_member(member()).await;
        let answer = node.resume(&ours, LONG, 6).await;
        assert!(unfit(WhyNot::Incomplete, Some(Balloted::NoMember), &answer), "{answer:?}");
        assert_eq!(node.event().await, NodeEvent::DataLost);
        assert!(held_by(&ours, &node.inspect().await), "the key is still there");
    }
}

#[tokio::test]
async fn non_admitted_master_extends_without_a_vote() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::new(&backend).await;
        let (ours, theirs) = tokens();
        assert_eq!(node.resume(&ours, LONG, 5).await, not_ours());
        node.acquire(&ours, LONG).await;
        let answer = node.resume(&ours, 2 * LONG, 5).await;
        assert!(unfit(WhyNot::AskedTooEarly, None, &answer), "{answer:?}");
        assert!(node.left().await > Duration::from_millis(LONG));
        assert!(held_by(&ours, &node.resume(&theirs, LONG, 6).await));
        let admitted = node.init(&Record::default(), FLOOR, 0).await.record;
        node.node.set_admitted(admitted.run);
        assert_eq!(node.resume(&ours, LONG, 5).await, accepted());
    }
}

#[tokio::test]
async fn without_quarantine_resume_creates_the_member() {
    let backend = Backend::without_quarantine().await;
    let mut node = Asker::new(&backend).await;
    let (ours, _) = tokens();
    node.acquire(&ours, LONG).await;
    assert_eq!(node.resume(&ours, LONG, 5).await, accepted());
    assert_eq!(node.resume(&ours, LONG, 5).await, refused_at(5));
    assert_eq!(node.score(&ours).await, at(score(5)));
}

#[tokio::test]
async fn resume_without_the_right_to_ballots_extends() {
    for backend in Backend::of_each_protocol().await {
        drop(Asker::admitted(&backend).await);
        backend.refuse_ballots().await;
        let mut node = Asker::new(&backend).await;
        node.node.set_admitted(node.facts.identity);
        let (ours, _) = tokens();
        node.acquire(&ours, LONG).await;
        let answer = node.resume(&ours, 2 * LONG, 5).await;
        assert!(matches!(&answer.verdict, Verdict::Unknown(Cause::ErrorReply(_))), "{answer:?}");
        assert!(answer.key_set && node.left().await > Duration::from_millis(LONG));
        assert_eq!(why_not(&answer), None);
    }
}

#[tokio::test]
async fn resumes_keep_their_order_among_others() {
    for backend in Backend::of_each_protocol().await {
        let mut node = Asker::admitted(&backend).await;
        let (ours, _) = tokens();
        let other = Bid { ballot: Ballot::new(900).unwrap(), member: Member::of(b"another") };
        assert_ne!(other.member, member());
        let mut expected = Vec::new();
        for n in 1..50 {
            let resume = |n| Op::resume(KEY, ours.clone(), LONG, bid(n));
            for (op, answer) in [
                (resume(3 * n), not_ours()),
                (Op::acquire_fenced(KEY, ours.clone(), LONG, bid(3 * n)), accepted()),
                (resume(3 * n), refused_at(3 * n)),
                (resume(3 * n + 1), accepted()),
                (Op::extend(KEY, ours.clone(), LONG), Answer::granted()),
                (Op::ballot(KEY, ours.clone(), bid(3 * n + 2)), accepted()),
                (Op::release(KEY, ours.clone()), Answer::granted()),
            ] {
                node.submit(expected.len() as u128, op);
                expected.push(answer);
            }
        }
        for (ticket, expected) in expected.into_iter().enumerate() {
            let vote = node.vote().await;
            assert_eq!((vote.ticket, &vote.answer), (ticket as u128, &expected));
        }
    }
}
