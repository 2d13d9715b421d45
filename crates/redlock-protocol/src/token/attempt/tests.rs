//! One attempt, in every order of events.

mod again;
mod refusals;

use super::*;
use crate::lab::*;
use crate::master_set::MasterSet;
use crate::quorum::quorum;
use crate::token::release::Release;
use crate::waiting::Refusal;

/// The possible events, and their effects as an omniscient observer sees them.
#[derive(Clone)]
struct Order {
    attempt: Attempt,
    pending: MasterSet,
    granted: MasterSet,
    /// The masters on which our key may be.
    exposed: MasterSet,
    is_timed_out: bool,
    is_grace_over: bool,
    awaits_copies: bool,
    now: Instant,
}

#[derive(Clone, Debug)]
enum Event {
    Vote(usize, Answer),
    TimeOut,
    EndGrace,
}

impl Order {
    fn new(masters: usize, options: HoldOptions) -> Self {
        Self {
            attempt: attempt(masters, options, at(0)),
            pending: MasterSet::all(masters),
            granted: MasterSet::EMPTY,
            exposed: MasterSet::all(masters),
            is_timed_out: false,
            is_grace_over: false,
            awaits_copies: false,
            now: at(0),
        }
    }

    /// The events that may happen next.
    fn events(&self) -> Vec<Event> {
        let answers = [Answer::granted(), held(), closed(), busy(), unsent()];
        let votes = self.pending.iter().flat_map(|master| {
            answers.clone().map(|answer| Event::Vote(master, answer)).into_iter()
        });
        let mut events: Vec<Event> = votes.collect();
        events.extend((!self.is_timed_out).then_some(Event::TimeOut));
        events.extend((self.awaits_copies && !self.is_grace_over).then_some(Event::EndGrace));
        events
    }

    fn note(&mut self, event: &Event) {
        match event {
            Event::Vote(master, answer) => {
                self.pending.remove(*master);
                match (&answer.verdict, answer.sent) {
                    (Verdict::Granted, _) => self.granted.insert(*master),
                    (Verdict::Unknown(Cause::ConnectionClosed), true) => {}
                    _ => self.exposed.remove(*master),
                }
            }
            Event::TimeOut => self.is_timed_out = true,
            Event::EndGrace => self.is_grace_over = true,
        }
    }

    fn apply(&mut self, event: &Event) -> Step {
        self.note(event);
        let now = self.now;
        match event {
            Event::Vote(master, answer) => self.attempt.vote(*master, answer, at(0), now),
            Event::TimeOut => self.attempt.time_out(now),
            Event::EndGrace => self.attempt.end_grace(now),
        }
    }

    /// Returns the step that the algorithm requires.
    fn expected(&self) -> Step {
        let quorum = quorum(self.attempt.ledger.masters());
        let out = if self.is_timed_out { 0 } else { self.pending.len() };
        let options = self.attempt.options;
        let has_copies = options.min_copies.is_none_or(|copies| self.granted.len() >= copies);
        let until = at(VALIDITY).saturating_sub(options.stop_margin);
        if self.granted.len() + out < quorum {
            Step::Lost(Defeat::Outvoted)
        } else if self.granted.len() < quorum {
            Step::Wait
        } else if !(has_copies || out == 0 || self.is_grace_over) {
            if self.awaits_copies { Step::Wait } else { Step::AwaitCopies }
        } else if self.now < until {
            Step::Won
        } else {
            Step::Lost(Defeat::TooLate)
        }
    }
}

/// The release that follows a cancelled or lost attempt goes where the key may be, and nowhere
/// else.
fn assert_released(order: &Order) {
    let ledger = order.attempt.clone().into_ledger();
    assert_eq!(ledger.may_hold(), order.exposed);
    let mut release = Release::new(ledger, order.pending, ms(1), false, order.now);
    assert_eq!(release.send(), order.exposed);
}

/// Votes that come after the win add copies, and never time.
fn assert_held(order: &Order) {
    let lease = order.attempt.clone().into_lease(order.now);
    let until = at(VALIDITY).saturating_sub(order.attempt.options.stop_margin);
    assert_eq!(lease.deadline(), Some(until));
    assert_eq!(lease.unanswered(), order.pending);
    late_votes(&lease, order);
}

fn late_votes(lease: &HeldLease, order: &Order) {
    for event in order.events() {
        let (mut lease, mut order) = (lease.clone(), order.clone());
        order.note(&event);
        match &event {
            Event::Vote(master, answer) => lease.acquired(*master, answer, at(0), order.now),
            Event::TimeOut => lease.attempt_timed_out(),
            Event::EndGrace => continue,
        }
        let until = at(VALIDITY).saturating_sub(order.attempt.options.stop_margin);
        assert_eq!(lease.deadline(), Some(until));
        assert_eq!(lease.unanswered(), order.pending);
        assert_eq!(lease.ledger().may_hold(), order.exposed);
        let copies = |master: &usize| lease.ledger().hold_until(*master) == at(VALIDITY);
        let copies: MasterSet = (0..lease.ledger().masters()).filter(copies).collect();
        assert_eq!(copies, order.granted);
        late_votes(&lease, &order);
    }
}

/// Tries every order of events from here on, each a moment after the previous event, or long after.
fn every_order(order: &Order, seen: &mut usize) {
    assert_released(order);
    for (event, pause) in order.events().iter().flat_map(|one| [(one, 1), (one, 990)]) {
        let mut next = order.clone();
        next.now = next.now.saturating_add(ms(pause));
        let expected = {
            let mut known = next.clone();
            known.note(event);
            known.expected()
        };
        let step = next.apply(event);
        assert_eq!(step, expected, "{event:?} in {order:?}", order = order.attempt);
        *seen += 1;
        assert_released(&next);
        match step {
            Step::Won => assert_held(&next),
            Step::Lost(_) => {}
            Step::AwaitCopies => {
                next.awaits_copies = true;
                every_order(&next, seen);
            }
            Step::Wait => every_order(&next, seen),
            Step::AskOthers | Step::TakeAgain => panic!("all were asked at once"),
            Step::Propose | Step::Join(_) => panic!("there is no ballot"),
        }
    }
}

#[test]
fn every_order_of_three_votes_is_decided_once_and_early() {
    for min_copies in [None, Some(2), Some(3)] {
        for stop_margin in [0, 500].map(ms) {
            let options = HoldOptions { min_copies, stop_margin, ..HoldOptions::default() };
            let mut seen = 0;
            every_order(&Order::new(3, options), &mut seen);
            assert!(seen > 1_000, "{seen}");
        }
    }
}

#[test]
fn a_single_master_decides_immediately() {
    every_order(&Order::new(1, HoldOptions::default()), &mut 0);
}

#[test]
fn the_fan_out_is_no_longer_than_the_node_timeout() {
    let mut attempt = attempt(3, HoldOptions::default(), at(100));
    attempt.vote(0, &Answer::granted(), at(100), at(110));
    attempt.vote(1, &Answer::granted(), at(100), at(130));
    assert_eq!(attempt.outcome().fan_out(), ms(30));
    attempt.vote(2, &Answer::granted(), at(100), at(900));
    assert_eq!(attempt.outcome().fan_out(), ms(30), "two votes decided");
    let mut stopped = self::attempt(3, HoldOptions::default(), at(100));
    stopped.vote(0, &Answer::granted(), at(100), at(110));
    stopped.vote(1, &Answer::granted(), at(100), at(900));
    assert_eq!(stopped.outcome().fan_out(), ms(NODE_TIMEOUT));
}

#[test]
fn grace_is_not_part_of_the_fan_out() {
    let options = HoldOptions { min_copies: Some(3), ..HoldOptions::default() };
    let mut attempt = attempt(3, options, at(0));
    attempt.vote(0, &Answer::granted(), at(0), at(1));
    assert_eq!(attempt.vote(1, &Answer::granted(), at(0), at(2)), Step::AwaitCopies);
    assert_eq!(attempt.time_out(at(50)), Step::Won);
    assert_eq!(attempt.outcome().fan_out(), ms(2));
}

#[test]
fn failed_resume_awaits_all_answers_and_releases_nothing() {
    let mut attempt = Attempt::new(3, Origin::Resumed, timing(TTL), HoldOptions::default(), at(0));
    assert_eq!(attempt.vote(0, &not_ours(), at(0), at(1)), Step::Wait);
    assert_eq!(attempt.vote(1, &not_ours(), at(0), at(1)), Step::Wait);
    let step = attempt.vote(2, &Answer::granted(), at(0), at(1));
    assert_eq!(step, Step::Lost(Defeat::Outvoted));
    assert_eq!(attempt.ledger.may_hold(), MasterSet::all(3));
    assert_eq!(attempt.origin(), Origin::Resumed);
}

#[test]
fn a_request_is_answered_by_a_quorum_and_unanswered_by_silence() {
    let mut attempt = attempt(3, HoldOptions::default(), at(0));
    attempt.vote(0, &held(), at(0), at(1));
    assert!(!attempt.outcome().is_answered());
    let mut refused = attempt.clone();
    refused.vote(1, &held(), at(0), at(1));
    assert!(refused.outcome().is_answered() && !refused.outcome().is_unanswered());
    attempt.vote(1, &closed(), at(0), at(1));
    let outcome = attempt.outcome();
    assert!(outcome.is_answered() && !outcome.is_unanswered(), "one more may answer");
    attempt.time_out(at(50));
    assert!(attempt.outcome().is_unanswered());
    assert_eq!(attempt.answers()[0].verdict, Verdict::HELD);
}

#[test]
fn grant_of_a_master_with_lost_data_is_invalid() {
    let mut attempt = attempt(3, HoldOptions::default(), at(0));
    attempt.vote(0, &Answer::granted(), at(0), at(1));
    assert_eq!(attempt.disown(0, checked(), at(2)), Step::Wait);
    assert_eq!(attempt.disown(2, checked(), at(2)), Step::Wait, "it has not voted");
    assert_eq!(attempt.vote(1, &Answer::granted(), at(0), at(3)), Step::Wait);
    assert_eq!(attempt.vote(2, &Answer::granted(), at(0), at(3)), Step::Won);
    assert_eq!(attempt.disown(1, checked(), at(4)), Step::Lost(Defeat::Outvoted));
    assert!(attempt.outcome().is_unanswered());
    assert_eq!(attempt.answers()[1].verdict, Verdict::Unknown(checked()));
}

#[test]
fn grace_ends_with_its_quorum() {
    let options = HoldOptions { min_copies: Some(3), ..HoldOptions::default() };
    let mut attempt = attempt(3, options, at(0));
    attempt.vote(0, &Answer::granted(), at(0), at(1));
    assert_eq!(attempt.vote(1, &Answer::granted(), at(0), at(1)), Step::AwaitCopies);
    assert_eq!(attempt.disown(0, checked(), at(2)), Step::Wait);
    assert_eq!(attempt.end_grace(at(10)), Step::Wait);
    assert_eq!(attempt.vote(2, &Answer::granted(), at(0), at(11)), Step::Won);
}

#[test]
fn others_are_queried_after_the_meeting_point_granted() {
    let first = || {
        let attempt = Attempt::new(5, Origin::Acquired, timing(TTL), HoldOptions::default(), at(0));
        attempt.asking_first(2)
    };
    for answer in [held(), unsent(), Answer::unknown(Cause::TimedOut)] {
        let mut attempt = first();
        let step = attempt.vote(2, &answer, at(0), at(1));
        assert_eq!(step, Step::Lost(Defeat::Outvoted), "{answer:?}");
        let may_hold = attempt.into_ledger().may_hold();
        let is_unknown = answer == Answer::unknown(Cause::TimedOut);
        assert_eq!(
            may_hold.len(),
            usize::from(is_unknown),
            "no other master was queried: {answer:?}"
        );
    }
    let mut attempt = first();
    assert_eq!(attempt.vote(2, &Answer::granted(), at(0), at(1)), Step::AskOthers);
    assert_eq!(attempt.ask_others(None).iter().collect::<Vec<_>>(), [0, 1, 3, 4]);
    assert_eq!(attempt.vote(0, &Answer::granted(), at(5), at(6)), Step::Wait);
    assert_eq!(attempt.vote(1, &Answer::granted(), at(5), at(6)), Step::Won);
    let until = attempt.into_lease(at(0)).deadline();
    let validity = timing(TTL).ttl.validity();
    assert_eq!(
        until,
        Some(at(0).saturating_add(validity)),
        "each grant is valid from its own request"
    );
}

#[test]
fn silent_meeting_point_loses_the_attempt() {
    let attempt = Attempt::new(3, Origin::Acquired, timing(TTL), HoldOptions::default(), at(0));
    let mut attempt = attempt.asking_first(1);
    assert_eq!(attempt.pending(), MasterSet::from_iter([1]));
    assert_eq!(attempt.time_out(at(9)), Step::Lost(Defeat::Outvoted));
    let silent = LastAnswer::unknown(Cause::TimedOut);
    let unasked = LastAnswer::unasked;
    assert_eq!(attempt.answers(), [unasked(), silent, unasked()]);
    assert_eq!(attempt.outcome().silent_first(), Some(1));
    assert_eq!(attempt.outcome().refusal(Defeat::Outvoted), Refusal::Silent);
    assert_eq!(attempt.into_ledger().may_hold().iter().collect::<Vec<_>>(), [1]);
}

#[test]
fn attempt_waits_for_more_copies_after_a_won_vote() {
    let options = HoldOptions { min_copies: Some(5), ..HoldOptions::default() };
    let mut attempt = attempt(5, options, at(0));
    let steps: Vec<Step> =
        (0..5).map(|master| attempt.vote(master, &Answer::granted(), at(0), at(1))).collect();
    assert_eq!(steps, [Step::Wait, Step::Wait, Step::AwaitCopies, Step::Wait, Step::Won]);
}

#[test]
fn lease_without_remaining_validity_is_not_won() {
    let mut attempt = attempt(1, HoldOptions::default(), at(0));
    let mut in_time = attempt.clone();
    assert_eq!(in_time.vote(0, &Answer::granted(), at(0), at(VALIDITY - 1)), Step::Won);
    let step = attempt.vote(0, &Answer::granted(), at(0), at(VALIDITY));
    assert_eq!(step, Step::Lost(Defeat::TooLate));
}

#[test]
fn silence_is_certain_after_the_timeout() {
    let mut attempt = attempt(5, HoldOptions::default(), at(0));
    for master in 0..3 {
        attempt.vote(master, &closed(), at(0), at(1));
    }
    assert!(!attempt.outcome().is_unanswered());
    attempt.time_out(at(50));
    assert!(attempt.outcome().is_unanswered());
}

#[test]
fn attempt_queries_all_masters_or_the_meeting_point_first() {
    assert_eq!(attempt(3, HoldOptions::default(), at(0)).asked(), MasterSet::all(3));
    let mut first = attempt(3, HoldOptions::default(), at(0)).asking_first(1);
    assert_eq!(first.asked(), MasterSet::from_iter([1]));
    first.ask_others(None);
    assert_eq!(first.asked(), MasterSet::all(3));
}

#[test]
fn refused_copy_needs_no_release() {
    let mut attempt = attempt(5, HoldOptions::default(), at(0));
    let copies = [0, 1].map(|master| (master, checked()));
    assert_eq!(attempt.only_copies(copies.into(), at(0)), Step::Wait);
    for (master, answer) in [(0, held()), (1, Answer::granted())] {
        assert_eq!(attempt.vote(master, &answer, at(0), at(1)), Step::Wait);
    }
    assert_eq!(attempt.ledger().may_hold(), MasterSet::from_iter([1, 2, 3, 4]));
}

#[test]
fn attempt_is_let_in_after_its_meeting_point_granted() {
    let mut entering = attempt(3, HoldOptions::default(), at(0)).entering(1);
    let mut is_let_in = |master| {
        entering.vote(master, &Answer::granted(), at(0), at(1));
        entering.outcome().is_let_in()
    };
    assert_eq!([0, 1].map(&mut is_let_in), [false, true]);
    let mut other = attempt(1, HoldOptions::default(), at(0));
    other.vote(0, &Answer::granted(), at(0), at(1));
    assert!(!other.outcome().is_let_in());
}

#[test]
fn key_on_an_unanswered_master_has_no_known_expiry() {
    let mut attempt = attempt(3, HoldOptions::default(), at(0));
    attempt.vote(0, &Answer::granted(), at(0), at(1));
    assert_eq!([0, 1].map(|master| attempt.left(master)), [Some(timing(TTL).expiry()), None]);
}
