//! The ends of a master's vote, and the reports about them.

mod quarantine_off;
mod remaining;

use std::time::Duration;

use redlock_core::WhyNot;

use super::*;

fn three() -> Vec<Master> {
    vec![Master::admitted(10), Master::admitted(20), Master::admitted(30)]
}

#[test]
fn null_push_stops_votes_until_a_later_probe() {
    let mut masters = three();
    let mut admission = client(&masters, 0);
    admission.on(0, Event::Pushed, 1);
    assert!(!admission.votes(0));
    assert_eq!(admission.step(0, 1, Nonce(1)), Step::Probe);
    admission.on(0, Event::Probed(masters[0].facts(1)), 1);
    assert!(admission.votes(0), "FLUSHDB of another database ends nothing");

    admission.on(0, Event::Pushed, 2);
    masters[0].data = Data::default();
    assert_eq!(settle(&mut admission, &mut masters, 2)[..3], ["probe", "records", "begin"]);
}

#[test]
fn probe_sent_before_the_push_ends_no_doubt() {
    let masters = three();
    let mut admission = client(&masters, 0);
    admission.on(0, Event::Pushed, 1);
    assert_eq!(admission.step(0, 1, Nonce(1)), Step::Probe);
    admission.on(0, Event::Pushed, 2);
    admission.on(0, Event::Probed(masters[0].facts(2)), 2);
    assert!(!admission.votes(0));
    assert_eq!(admission.step(0, 2, Nonce(1)), Step::Probe);
    admission.on(0, Event::Probed(masters[0].facts(2)), 2);
    assert!(admission.votes(0));
}

#[test]
fn probe_finds_an_empty_ballot_set() {
    let mut masters = three();
    let mut admission = client(&masters, 0);
    masters[0].data.sets.clear();
    admission.on(0, Event::Pushed, 1);
    assert!(!admission.votes(0));
    assert_eq!(settle(&mut admission, &mut masters, 1)[..3], ["probe", "records", "begin"]);
}

#[test]
fn ballot_set_is_presumed_complete_until_its_size_is_known() {
    let masters = three();
    let mut admission = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN);
    admission.on(0, Event::Up(MasterView { members: None, ..masters[0].facts(0) }), 0);
    assert!(admission.votes(0));
    admission.on(0, Event::Members(MEMBERS - 1), 0);
    assert!(!admission.votes(0));
    assert_eq!(not_admitted(&admission, 0, 0).why, WhyNot::Incomplete);
}

#[test]
fn two_addresses_of_one_server_have_one_vote() {
    let mut masters = three();
    masters[2] = masters[1].clone();
    let mut admission = client(&masters, 0);
    assert_eq!([0, 1, 2].map(|master| admission.votes(master)), [true, true, false]);
    assert_eq!(admission.why(2, 0), Some(Why::TwinOf(1)));
    admission.on(1, Event::Down, 1);
    assert!(!admission.votes(2), "keys of the other address are still counted");
    masters[1] = Master::admitted(20);
    masters[1].restart(21);
    admission.on(1, Event::Up(masters[1].facts(2)), 2);
    assert!(admission.votes(2), "the other address leads to another server");
}

#[test]
fn non_voting_master_reports_reason_and_remaining_time() {
    let mut masters = three();
    let mut admission = client(&masters, 0);
    masters[0].restart(11);
    admission.on(0, Event::Down, 0);
    assert_eq!(admission.why(0, 0), Some(Why::Away));
    let said = |admission: &Admission, now| {
        let said = not_admitted(admission, 0, now);
        (said.why, said.in_quarantine, said.votes_again)
    };
    let left = |millis| Some(Duration::from_millis(millis));
    admission.on(0, Event::Up(masters[0].facts(0)), 0);
    assert_eq!(said(&admission, 0), (WhyNot::Emptied, false, left(LENGTH)));
    settle(&mut admission, &mut masters, 0);
    assert_eq!(said(&admission, 300), (WhyNot::Emptied, true, left(LENGTH - 300)));
}

/// A master that keeps its record shows that it was admitted before.
#[test]
fn restarted_master_differs_from_a_never_admitted_one() {
    let mut masters = three();
    masters[0].identity = identity(11);
    let mut admission = client(&masters, 0);
    let said = |admission: &Admission| {
        let said = not_admitted(admission, 0, 0);
        (said.why, said.in_quarantine)
    };
    assert_eq!(said(&admission), (WhyNot::Restarted, false));
    settle(&mut admission, &mut masters, 0);
    assert_eq!(said(&admission), (WhyNot::Restarted, true));
}

/// `init` would be refused there.
#[test]
fn master_is_new_only_if_no_record_shows_use() {
    let mut masters = three();
    masters.iter_mut().zip([11, 21, 31]).for_each(|(master, run)| master.restart(run));
    let why = |masters: &[Master]| not_admitted(&client(masters, 0), 0, 0).why;
    assert_eq!(why(&masters), WhyNot::New, "all records are gone");
    settle(&mut client(&masters, 0), &mut masters, 0);
    assert_eq!(why(&masters), WhyNot::New, "a quarantine does not show that the prefix is in use");
    masters[2] = Master::admitted(30);
    assert_eq!(why(&masters), WhyNot::Emptied, "another one votes");
    masters[2].identity = identity(31);
    assert_eq!(why(&masters), WhyNot::Emptied, "another one restarted with its record");
    masters[2].up = false;
    assert_eq!(why(&masters), WhyNot::New, "that record cannot be read");
}

/// It outlives the record, the process and the connection.
#[test]
fn client_that_read_a_record_never_reports_masters_as_new() {
    let mut masters = three();
    let mut admission = client(&masters, 0);
    for (index, run) in [11, 21, 31].into_iter().enumerate() {
        masters[index].restart(run);
        reconnect(&mut admission, &masters, index, 1);
    }
    assert_eq!(not_admitted(&admission, 0, 1).why, WhyNot::Emptied);
    assert_eq!(not_admitted(&client(&masters, 1), 0, 1).why, WhyNot::New, "a new client");
}

/// It may have been sent before the push.
#[test]
fn only_a_probe_after_the_push_ends_the_doubt() {
    let mut masters = three();
    let mut admission = client(&masters, 0);
    let before = masters[0].facts(0);
    admission.on(0, Event::Pushed, 1);
    admission.on(0, Event::Read(before), 2);
    assert!(!admission.votes(0));
    settle(&mut admission, &mut masters, 3);
    assert!(admission.votes(0));
    masters[0].data.sets.clear();
    admission.on(0, Event::Read(masters[0].facts(4)), 4);
    assert_eq!(not_admitted(&admission, 0, 4).why, WhyNot::Incomplete);
}

/// The reader can be a report, a floor, or the quarantine of another master.
#[test]
fn facts_from_any_reader_are_used() {
    let mut masters = three();
    let mut admission = client(&masters, 0);
    assert_eq!(admission.admitted_as(0), Some(identity(10)));
    admission.on(0, Event::Pushed, 1);
    assert_eq!(
        admission.admitted_as(0),
        Some(identity(10)),
        "requests from now on follow the probe"
    );
    masters[1].data = Data::default();
    assert!(admission.votes(1), "it was not read");
    admission.on(1, Event::Read(masters[1].facts(2)), 2);
    assert_eq!((admission.votes(1), admission.admitted_as(1)), (false, None));
    assert!(
        matches!(admission.step(1, 2, Nonce(9)), Step::ReadRecords(_)),
        "it begins immediately"
    );
    masters[2].identity = former_replica(30, 9);
    admission.on(2, Event::Read(masters[2].facts(2)), 2);
    assert_eq!(
        (admission.votes(2), admission.admitted_as(2)),
        (false, None),
        "another incarnation"
    );
}

#[test]
fn uncounted_members_keep_their_number_within_one_incarnation() {
    let mut masters = three();
    masters[0].data.sets.clear();
    let mut admission = client(&masters, 0);
    let uncounted = |master: &Master| Event::Read(MasterView { members: None, ..master.facts(1) });
    admission.on(0, uncounted(&masters[0]), 1);
    assert_eq!(not_admitted(&admission, 0, 1).why, WhyNot::Incomplete);
    masters[0].data.record.nonce = Some(Nonce(99));
    admission.on(0, uncounted(&masters[0]), 2);
    assert!(admission.votes(0), "an uncounted set is complete");
}

/// A program that repeatedly reads reports delays no quarantine.
#[test]
fn other_reads_do_not_delay_the_next_probe() {
    let mut masters = three();
    masters[0].restart(9);
    let mut admission = client(&masters, 0);
    settle(&mut admission, &mut masters, 0);
    for now in 1..1000 {
        admission.on(0, Event::Read(masters[0].facts(now)), now);
        assert_ne!(admission.step(0, now, Nonce(9)), Step::Probe, "{now}");
    }
    assert_eq!(admission.step(0, 1000, Nonce(9)), Step::Probe);
}

#[test]
fn age_of_a_nonce_stays_known_after_a_reconnect() {
    let mut masters = three();
    masters[0].restart(11);
    let mut admission = client(&masters, 0);
    settle(&mut admission, &mut masters, 0);
    admission.on(0, Event::Down, 500);
    admission.on(0, Event::Up(masters[0].facts(600)), 600);
    settle(&mut admission, &mut masters, 600);
    let left = not_admitted(&admission, 0, 600).votes_again;
    assert_eq!(left, Some(Duration::from_millis(LENGTH - 600)));
    settle(&mut admission, &mut masters, LENGTH);
    assert!(admission.votes(0));
}

#[test]
fn failed_step_is_retried_after_the_next_probe() {
    let mut masters = three();
    masters[0].restart(11);
    let mut admission = client(&masters, 0);
    read_records(&mut admission, &mut masters, 0);
    assert!(matches!(admission.step(0, 0, Nonce(1)), Step::Begin(_)));
    assert_eq!(admission.step(0, 0, Nonce(1)), Step::Nothing, "one at a time");
    admission.on(0, Event::Failed, 20);
    assert_eq!(admission.step(0, 20, Nonce(1)), Step::Wait(1020));
    assert_eq!(settle(&mut admission, &mut masters, 1020)[..3], ["probe", "records", "begin"]);
}

#[test]
fn answers_for_a_previous_quarantine_are_ignored() {
    let mut masters = three();
    masters[0].restart(11);
    let mut admission = client(&masters, 0);
    settle(&mut admission, &mut masters, 0);
    let told = MasterTime { master: 1, process: process(20), time: EPOCH + 9 * LENGTH };
    masters[0].data = Data::default();
    admission.on(0, Event::Pushed, 10);
    admission.on(0, Event::Times(Nonce(1), vec![told]), 10);
    settle(&mut admission, &mut masters, 10);
    let quarantine = masters[0].data.record.quarantine.clone();
    assert_eq!(quarantine.and_then(|found| found.note(process(20))), Some(EPOCH + 10));
}

#[test]
fn flushed_and_readmitted_master_is_another_incarnation() {
    let mut masters = three();
    let mut admission = client(&masters, 0);
    let incarnation = admission.incarnation(0);
    assert!(incarnation.is_some());
    admission.on(0, Event::Pushed, 1);
    assert_eq!(admission.incarnation(0), None);
    settle(&mut admission, &mut masters, 1);
    assert_eq!(admission.incarnation(0), incarnation, "another database was flushed");

    masters[0].data = Data::default();
    let init = masters[0].init_order(77);
    masters[0].data.init(EPOCH, &init);
    admission.on(0, Event::Pushed, 2);
    settle(&mut admission, &mut masters, 2);
    assert!(admission.votes(0));
    assert_ne!(admission.incarnation(0), incarnation);
}

#[test]
fn a_quarantine_without_max_ttl_begins_again() {
    let mut masters = three();
    masters[0].restart(11);
    settle(&mut client(&masters, 0), &mut masters, 0);
    masters[0].data.record.max_ttl = None;
    let now = 9 * LENGTH;
    settle(&mut client(&masters, now), &mut masters, now);
    let until = masters[0].data.record.quarantine.as_ref().map(|found| found.until);
    assert_eq!(until, Some(EPOCH + now + LENGTH));
}

/// It wrote nothing, so no script has reported it.
#[test]
fn read_only_client_tells_use_without_quarantine_from_new() {
    let why = |facts: MasterView, counted: Option<u32>| {
        let mut admission = Admission::new(1, MAX_TTL, 1000, ACT_WITHIN);
        admission.on(0, Event::Up(MasterView { members: None, ..facts }), 0);
        counted.into_iter().for_each(|members| admission.on(0, Event::Members(members), 0));
        let Some(Why::NotAdmitted(said)) = admission.why(0, 0) else { panic!("it votes") };
        (said.why, said.votes_again.is_some())
    };
    let mut master = Master::fresh(10);
    assert_eq!(why(master.facts(0), None), (WhyNot::New, true));
    assert_eq!(why(master.facts(0), Some(0)), (WhyNot::New, true));
    master.data.off = off_set();
    let used = (WhyNot::UsedWithoutQuarantine, false);
    assert_eq!(why(master.facts(0), master.facts(0).members), used);
    master.data.record.floor = Some(31);
    assert_eq!(why(master.facts(0), Some(1)), used, "it was admitted before");
    let admitted = Master::admitted(20);
    let other = MasterView { identity: identity(21), ..admitted.facts(0) };
    assert_eq!(why(other, Some(MEMBERS)), (WhyNot::Restarted, true), "these are its own");
}

#[test]
fn time_of_a_master_advances_after_a_failed_step() {
    let mut masters = three();
    masters[0].restart(11);
    let mut admission = client(&masters, 0);
    read_records(&mut admission, &mut masters, 0);
    assert!(matches!(admission.step(0, 0, Nonce(1)), Step::Begin(_)));
    admission.on(0, Event::Failed, 20);
    assert_eq!(admission.time(0, 50), masters[0].time(50));
}
