//! The keeper, and extensions that the holder waits for.

use super::*;

#[test]
fn the_keeper_extends_a_third_of_the_ttl_after_the_confirmation() {
    let mut lease = lease(3, 3, options(), at(600));
    let due = at(600).saturating_add(ms(TTL) / 3);
    assert_eq!(lease.due(), Some(due));
    assert_eq!(lease.tick(at(933), 0.5), Step::default(), "a moment too early");
    let Extend { number, masters } = keep(&mut lease, due);
    assert_eq!(masters, set(0..3));
    all_answer(&mut lease, number, 0..2, &Answer::granted(), at(950));
    assert_eq!(lease.due(), Some(at(950).saturating_add(ms(TTL) / 3)));
}

#[test]
fn no_extension_is_due_without_a_keeper() {
    let mut lease = lease(3, 3, HoldOptions { auto_extend: false, ..options() }, at(0));
    assert_eq!((lease.due(), lease.tick(at(900), 0.5)), (None, Step::default()));
    let number = lease.extend(timing(TTL)).number;
    all_answer(&mut lease, number, 0..3, &Answer::granted(), at(900));
    assert_eq!(lease.due(), None);
}

#[test]
fn pauses_double_to_a_tenth_of_the_ttl_until_an_extension() {
    let mut lease = lease(3, 3, options(), at(0));
    let mut now = lease.due().unwrap();
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let number = keep(&mut lease, now).number;
        all_answer(&mut lease, number, 0..3, &busy(), now);
        let answer_by = lease.due().unwrap();
        assert_eq!(answer_by, now.saturating_add(ms(NODE_TIMEOUT)));
        assert_eq!(lease.tick(answer_by, 1.0), Step::default());
        now = lease.due().unwrap();
        pauses.push(now.saturating_since(answer_by));
    }
    assert_eq!(pauses, [50, 100, 100, 100].map(ms));
    let number = keep(&mut lease, now).number;
    all_answer(&mut lease, number, 0..2, &Answer::granted(), now);
    now = lease.due().unwrap();
    keep(&mut lease, now);
    let answer_by = lease.due().unwrap();
    lease.tick(answer_by, 0.0);
    assert_eq!(lease.due(), Some(answer_by.saturating_add(ms(25))), "it starts again");
}

#[test]
fn keeper_skips_masters_that_have_not_answered() {
    let mut lease = lease(3, 3, options(), at(0));
    let first = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, first, [0], &Answer::granted(), at(401));
    lease.tick(at(450), 0.0);
    assert_eq!(lease.ledger().answer(1).verdict, Verdict::Unknown(Cause::TimedOut));
    assert_eq!(lease.ledger().answer(0).verdict, Verdict::Granted);
    assert_eq!(keep(&mut lease, at(475)).masters, set([0]));
    lease.tick(at(525), 0.0);
    assert_eq!(lease.unanswered(), set(0..3));
    assert_eq!(lease.tick(at(600), 0.0), Step::default(), "there is no master to query");
    assert_eq!(lease.due(), Some(at(600 + NODE_TIMEOUT)));
    lease.extended(first, 1, &Answer::granted(), at(400), at(610));
    assert_eq!(lease.deadline(), Some(at(400 + VALIDITY)), "late, and in time");
}

#[test]
fn keeper_stops_at_max_hold_and_reports_it() {
    let options = HoldOptions { max_hold: Some(ms(400)), ..options() };
    let mut lease = lease(3, 3, options, at(600));
    assert_eq!(lease.tick(at(999), 0.5).extend.map(|one| one.masters), Some(set(0..3)));
    let number = lease.last_number;
    all_answer(&mut lease, number, 0..3, &Answer::granted(), at(999));
    assert_eq!(lease.reason(), LostReason::NotExtended);
    let due = lease.due().unwrap();
    assert_eq!((lease.tick(due, 0.5), lease.due()), (Step::default(), None));
    assert_eq!((lease.deadline(), lease.reason()), (Some(at(999 + VALIDITY)), LostReason::MaxHold));
}

#[test]
fn max_hold_ends_at_its_exact_instant() {
    let options = HoldOptions { max_hold: Some(ms(400)), ..options() };
    let mut lease = lease(3, 3, options, at(0));
    assert_eq!(lease.tick(at(400), 0.5), Step::default());
    assert_eq!(lease.reason(), LostReason::MaxHold);
}

// Extensions that the holder waits for.

fn extended(steps: &[Step]) -> Vec<Option<Extended>> {
    steps.iter().map(|step| step.extended.map(|(_, extended)| extended)).collect()
}

#[test]
fn holder_gets_one_answer_when_a_quorum_has_confirmed() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = lease.extend(timing(TTL)).number;
    let steps = all_answer(&mut lease, number, 0..2, &Answer::granted(), at(10));
    assert_eq!(extended(&steps), [None, Some(Extended::Confirmed)]);
    assert_eq!(lease.extension_timed_out(number), None);
    assert_eq!(extended(&all_answer(&mut lease, number, [2], &not_ours(), at(60))), [None]);
    assert_eq!(lease.extension_timed_out(number), None);
    assert!(lease.extensions.is_empty());
}

#[test]
fn unconfirmed_extension_is_answered_after_all_masters() {
    for (answers, expected) in [
        ([not_ours(), not_ours(), Answer::granted()], Extended::NotOurs),
        ([held(), not_ours(), closed()], Extended::NotOurs),
        ([not_ours(), Answer::granted(), closed()], Extended::NoQuorum),
        ([closed(), busy(), Answer::granted()], Extended::NoQuorum),
    ] {
        let mut lease = lease(3, 3, options(), at(0));
        let number = lease.extend(timing(TTL)).number;
        let mut steps = Vec::new();
        for (master, answer) in answers.iter().enumerate() {
            steps.push(lease.extended(number, master, answer, at(10), at(11)));
        }
        assert_eq!(extended(&steps), [None, None, Some(expected)], "{answers:?}");
        assert!(lease.extensions.is_empty());
    }
}

#[test]
fn holder_is_answered_at_the_timeout_and_late_votes_are_valid() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = lease.extend(timing(TTL)).number;
    all_answer(&mut lease, number, [0], &Answer::granted(), at(10));
    assert_eq!(lease.extension_timed_out(number), Some(Extended::NoQuorum));
    assert_eq!(lease.ledger().answer(1).verdict, Verdict::Unknown(Cause::TimedOut));
    assert_eq!(lease.ledger().answer(0).verdict, Verdict::Granted);
    assert_eq!(lease.unanswered(), set([1, 2]));
    let steps = all_answer(&mut lease, number, 1..3, &Answer::granted(), at(70));
    assert_eq!(extended(&steps), [None, None]);
    assert_eq!(lease.deadline(), Some(at(70 + VALIDITY)));
}

#[test]
fn keeper_extensions_report_no_answer() {
    let mut lease = lease(3, 3, options(), at(0));
    let number = keep(&mut lease, at(400)).number;
    let steps = all_answer(&mut lease, number, 0..3, &Answer::granted(), at(401));
    assert_eq!(extended(&steps), [None; 3]);
    assert_eq!(lease.extension_timed_out(number), None);
}

#[test]
fn keeper_timeout_does_not_end_the_holders_extension() {
    let mut lease = lease(3, 3, options(), at(0));
    let asked = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, asked, 0..2, &busy(), at(401));
    let number = lease.extend(timing(TTL)).number;
    all_answer(&mut lease, number, [0], &not_ours(), at(440));
    let step = lease.tick(at(450), 0.5);
    assert_eq!(step.readd, set([]));
    assert_eq!(lease.ledger().answer(1).verdict, busy().verdict);
    assert_eq!(lease.ledger().answer(2).verdict, Verdict::Unknown(Cause::TimedOut));
}

#[test]
fn unanswered_masters_are_silent_after_the_keepers_timeout() {
    let mut lease = lease(3, 3, options(), at(0));
    assert_eq!(lease.silent(at(900)), MasterSet::EMPTY, "nothing was requested");
    let asked = keep(&mut lease, at(400)).number;
    assert_eq!(lease.unanswered_of(asked), set([0, 1, 2]));
    assert_eq!(lease.unanswered_of(asked + 1), MasterSet::EMPTY);
    all_answer(&mut lease, asked, [1], &Answer::granted(), at(401));
    assert_eq!(lease.unanswered_of(asked), set([0, 2]));
    let up = 400 + NODE_TIMEOUT;
    assert_eq!(lease.silent(at(up - 1)), MasterSet::EMPTY);
    assert_eq!(lease.silent(at(up)), set([0, 2]));
}

#[test]
fn cancelled_extension_still_answers_its_holder() {
    let mut lease = lease(3, 3, options(), at(0));
    let extended = Some((1, Extended::Confirmed));
    let step = Step { extended, ..Step::default() };
    assert_eq!(lease.call_off(step).extended, extended);
}

#[test]
fn copy_ends_at_its_exact_instant() {
    let mut lease = lease(5, 5, options(), at(0));
    let asked = keep(&mut lease, at(400)).number;
    all_answer(&mut lease, asked, 0..4, &Answer::granted(), at(401));
    all_answer(&mut lease, asked, [4], &busy(), at(401));
    // The last master has confirmed only the first request, which was valid until then.
    assert!(lease.clone().ask_again(4, at(VALIDITY - 1)).extend.is_some());
    assert_eq!(lease.ask_again(4, at(VALIDITY)).extend, None);
}

#[test]
fn non_voting_master_still_proves_a_lost_key() {
    let mut lease = lease(3, 3, options(), at(0));
    let asked = keep(&mut lease, at(400)).number;
    for master in 0..2 {
        lease.extended(asked, master, uncounted(&not_ours()), at(400), at(401));
    }
    assert_eq!((lease.deadline(), lease.reason()), (None, LostReason::NotOurs));
}
