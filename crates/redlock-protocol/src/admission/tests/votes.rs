//! The ends of a master's vote, and the reports about them.

use std::time::Duration;

use redlock_core::WhyNot;

use super::*;

fn three() -> Vec<Master> {
    vec![Master::admitted(10), Master::admitted(20), Master::admitted(30)]
}

#[test]
fn after_a_null_push_nothing_counts_until_a_look_behind_it() {
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
fn a_look_that_was_sent_before_the_push_ends_no_doubt() {
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
fn a_set_without_members_is_found_by_a_look() {
    let mut masters = three();
    let mut admission = client(&masters, 0);
    masters[0].data.sets.clear();
    admission.on(0, Event::Pushed, 1);
    assert!(!admission.votes(0));
    assert_eq!(settle(&mut admission, &mut masters, 1)[..3], ["probe", "records", "begin"]);
}

#[test]
fn a_set_counts_as_complete_until_it_is_counted() {
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
fn a_vote_that_does_not_count_says_why_and_how_long() {
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

/// Returns whether the first master is admitted at `later` by a client that stayed, or by a new
/// client.
fn is_admitted_at(later: Millis, masters: &[Master], stays: &Admission) -> bool {
    let (mut masters, mut stays) = (masters.to_vec(), stays.clone());
    settle(&mut stays, &mut masters, later);
    settle(&mut client(&masters, later), &mut masters, later);
    masters[0].data.record.admits(masters[0].identity)
}

/// Returns how long it takes at the latest if clients come and go.
fn by_visits(client: &Admission, now: Millis) -> Option<Duration> {
    not_admitted(client, 0, now).by_visits
}

/// The first one comes late: nothing is known of the time before it.
#[test]
fn clients_that_come_and_go_end_a_quarantine_by_the_time_that_was_said_and_no_sooner() {
    for first in [0, 700] {
        let mut masters = three();
        (masters[1].ahead, masters[2].ahead) = (5 * LENGTH, 300);
        masters[0].restart(11);
        let said = by_visits(&client(&masters, first), first).unwrap();
        let over = first + u64::try_from(said.as_millis()).unwrap();
        for now in (first..over).step_by(50).chain([over - 1]) {
            let mut visitor = client(&masters, now);
            let left = by_visits(&visitor, now);
            assert_eq!(left, Some(Duration::from_millis(over - now)), "at {now}");
            settle(&mut visitor, &mut masters, now);
            assert!(!masters[0].data.record.admits(masters[0].identity), "at {now}");
        }
        settle(&mut client(&masters, over), &mut masters, over);
        assert!(masters[0].data.record.admits(masters[0].identity));
    }
}

/// Clients that came a while after the quarantine had begun found no master that votes, and noted
/// nothing. A note ahead of its clock counts for nothing, and is written again.
#[test]
fn without_a_note_that_counts_the_clocks_of_two_masters_take_twice_the_length_from_now() {
    let mut masters = three();
    (masters[1].up, masters[2].up) = (false, false);
    masters[0].restart(11);
    let mut stays = client(&[masters[0].clone(), Master::admitted(20), Master::admitted(30)], 0);
    stays.on(1, Event::Down, 0);
    stays.on(2, Event::Down, 0);
    assert_eq!(by_visits(&stays, 0), None, "only a client that stays ends it");
    masters[1].up = true;
    assert_eq!(by_visits(&client(&masters, 50), 50), Some(2 * Duration::from_millis(LENGTH)));
    masters[1].ahead = LENGTH;
    settle(&mut client(&masters, 100), &mut masters, 100);
    assert_eq!(
        by_visits(&client(&masters, 200), 200),
        Some(Duration::from_millis(2 * LENGTH - 100))
    );
    masters[1].ahead = 0;
    assert_eq!(by_visits(&client(&masters, 300), 300), Some(2 * Duration::from_millis(LENGTH)));
}

#[test]
fn of_brand_new_masters_only_a_client_that_stays_ends_the_quarantines() {
    let mut masters: Vec<_> = [10, 20, 30].map(Master::fresh).to_vec();
    let mut admission = client(&masters, 0);
    let said = |admission: &Admission| {
        let said = not_admitted(admission, 0, 0);
        (said.votes_again, said.by_visits)
    };
    assert_eq!(said(&admission), (Some(Duration::from_millis(LENGTH)), None));
    settle(&mut admission, &mut masters, 0);
    assert_eq!(said(&admission), (Some(Duration::from_millis(LENGTH)), None));
}

/// Each client is short-lived. A client that only reads, and has queried no master for TIME,
/// reports the same.
#[test]
fn the_time_that_is_said_falls_from_visit_to_visit_and_is_never_too_early() {
    let mut masters = three();
    (masters[1].ahead, masters[2].ahead) = (5 * LENGTH, 300);
    masters[0].restart(11);
    for now in (0..2 * LENGTH).step_by(100) {
        let mut visitor = client(&masters, now);
        let left = |visitor: &Admission| not_admitted(visitor, 0, now).votes_again.unwrap();
        let (read_only, visits) = (left(&visitor), by_visits(&visitor, now));
        assert_eq!(visits, Some(Duration::from_millis(2 * LENGTH - now)), "at {now}");
        settle(&mut visitor, &mut masters, now);
        assert_eq!((left(&visitor), by_visits(&visitor, now)), (read_only, visits), "at {now}");
        assert_eq!(read_only, Duration::from_millis(LENGTH.min(2 * LENGTH - now)), "at {now}");
        let later = not_admitted(&visitor, 0, now + 30).votes_again.unwrap();
        assert_eq!(later, read_only - Duration::from_millis(30), "at {now}");
        let over = now + u64::try_from(read_only.as_millis()).unwrap();
        assert!(!is_admitted_at(over - 1, &masters, &visitor), "at {now}");
        assert!(is_admitted_at(over, &masters, &visitor), "at {now}");
    }
}

/// A quarantine does not end by the note of a process that does not answer.
#[test]
fn notes_of_masters_that_do_not_vote_make_the_time_that_is_said_no_shorter() {
    let mut masters = three();
    masters[0].restart(11);
    settle(&mut client(&masters, 0), &mut masters, 0);
    let now = 2 * LENGTH - 100;
    let left = |masters: &[Master]| not_admitted(&client(masters, now), 0, now).votes_again;
    assert_eq!(left(&masters), Some(Duration::from_millis(100)));
    masters[1].up = false;
    masters[2].data = Data::default();
    assert_eq!(left(&masters), Some(Duration::from_millis(LENGTH)), "the same process, emptied");
    masters[2] = Master::admitted(31);
    assert_eq!(left(&masters), Some(Duration::from_millis(LENGTH)), "another process");
}

/// A master that keeps its record shows that it was admitted before.
#[test]
fn a_restart_is_told_apart_from_a_master_that_never_was_admitted() {
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
fn a_master_without_a_record_is_new_only_if_no_record_shows_use() {
    let mut masters = three();
    masters.iter_mut().zip([11, 21, 31]).for_each(|(master, run)| master.restart(run));
    let why = |masters: &[Master]| not_admitted(&client(masters, 0), 0, 0).why;
    assert_eq!(why(&masters), WhyNot::New, "all records are gone");
    settle(&mut client(&masters, 0), &mut masters, 0);
    assert_eq!(why(&masters), WhyNot::New, "a quarantine alone shows no use");
    masters[2] = Master::admitted(30);
    assert_eq!(why(&masters), WhyNot::Emptied, "another one votes");
    masters[2].identity = identity(31);
    assert_eq!(why(&masters), WhyNot::Emptied, "another one restarted with its record");
    masters[2].up = false;
    assert_eq!(why(&masters), WhyNot::New, "that record cannot be read");
}

/// It outlives the record, the process and the connection.
#[test]
fn a_client_that_has_read_a_record_calls_no_master_brand_new_when_all_records_are_gone() {
    let mut masters = three();
    let mut admission = client(&masters, 0);
    for (index, run) in [11, 21, 31].into_iter().enumerate() {
        masters[index].restart(run);
        reconnect(&mut admission, &masters, index, 1);
    }
    assert_eq!(not_admitted(&admission, 0, 1).why, WhyNot::Emptied);
    assert_eq!(not_admitted(&client(&masters, 1), 0, 1).why, WhyNot::New, "a new client");
}

#[test]
fn without_quarantine_a_master_that_forgot_votes_and_nothing_is_written() {
    let mut masters = [1, 2, 3].map(Master::fresh).to_vec();
    let mut admission = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN).without_quarantine();
    admission.ask();
    for (index, master) in masters.iter().enumerate() {
        admission.on(index, Event::Up(master.facts(0)), 0);
    }
    assert!((0..3).all(|index| admission.votes(index)));
    assert!(settle(&mut admission, &mut masters, 0).is_empty());
    admission.on(0, Event::Pushed, 1);
    assert!(!admission.votes(0));
    assert_eq!(settle(&mut admission, &mut masters, 1), ["probe"]);
    assert!(admission.votes(0));
}

fn plain_without_quarantine(masters: &[Master]) -> Admission {
    let admission = Admission::new(masters.len(), MAX_TTL, 1000, ACT_WITHIN);
    let mut admission = admission.without_quarantine().without_ballots();
    for (index, master) in masters.iter().enumerate().filter(|(_, master)| master.up) {
        admission.on(index, Event::Up(master.facts(0)), 0);
    }
    admission
}

/// Clients with a quarantine see its ballots otherwise.
#[test]
fn without_quarantine_and_ballots_each_connection_shows_its_use_once_and_for_a_lock() {
    let mut masters = [1, 2, 3].map(Master::fresh).to_vec();
    let mut admission = plain_without_quarantine(&masters);
    assert!(settle(&mut admission, &mut masters, 0).is_empty(), "it was asked for no lock");
    admission.ask();
    assert_eq!(settle(&mut admission, &mut masters, 0), ["show"; 3]);
    assert!((0..3).all(|index| admission.votes(index)));
    admission.on(0, Event::Pushed, 1);
    assert_eq!(settle(&mut admission, &mut masters, 1), ["probe"]);
    admission.on(0, Event::Down, 2);
    admission.on(0, Event::Up(masters[0].facts(2)), 2);
    assert_eq!(settle(&mut admission, &mut masters, 2), ["show"]);

    let mut on = client(&masters, 3);
    assert_eq!(not_admitted(&on, 0, 3).why, WhyNot::UsedWithoutQuarantine);
    assert!(!settle(&mut on, &mut masters, 3).contains(&"admit"));
    assert!(masters.iter().all(|master| master.data.record == Record::default()));
}

/// A master that restarted empty, of a prefix with a quarantine, is reached first.
#[test]
fn nothing_is_shown_where_clients_with_quarantine_use_the_namespace() {
    let mut masters = three();
    masters[0].restart(11);
    (masters[1].up, masters[2].up) = (false, false);
    let mut admission = plain_without_quarantine(&masters);
    admission.ask();
    assert!(admission.votes(0) && settle(&mut admission, &mut masters, 0).is_empty());
    admission.on(1, Event::Up(masters[1].facts(1)), 1);
    assert!(settle(&mut admission, &mut masters, 1).is_empty());
    assert_eq!(masters[0].data.off, None);
}

/// The record goes that another client had begun, and what this one shows stays.
#[test]
fn a_record_that_was_never_admitted_is_removed_and_the_use_is_shown() {
    let mut masters = [1, 2, 3].map(Master::fresh).to_vec();
    settle(&mut client(&masters, 0), &mut masters, 0);
    let mut admission = plain_without_quarantine(&masters);
    admission.ask();
    let mut steps = settle(&mut admission, &mut masters, 0);
    steps.sort_unstable();
    assert_eq!(steps, ["remove", "remove", "remove", "show", "show", "show"]);
    for master in &masters {
        assert_eq!((&master.data.record, master.data.off.is_some()), (&Record::default(), true));
    }
}

/// For example, its user is not allowed to write there. A null push afterwards leads to an
/// immediate probe.
#[test]
fn a_use_that_cannot_be_shown_costs_nothing() {
    let masters = [1, 2, 3].map(Master::fresh).to_vec();
    let mut admission = plain_without_quarantine(&masters);
    admission.ask();
    assert_eq!(admission.step(0, 0, Nonce(1)), Step::ShowUse);
    admission.on(0, Event::Shown, 1);
    assert!(admission.votes(0));
    assert_eq!(admission.step(0, 1, Nonce(1)), Step::Nothing, "and it is not tried again");
    admission.on(0, Event::Pushed, 2);
    assert_eq!(admission.step(0, 2, Nonce(1)), Step::Probe);
}

/// It may have been sent before the push.
#[test]
fn an_earlier_probe_does_not_end_a_doubt_but_a_later_one_does() {
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
fn any_reader_is_believed_and_only_records_name_the_ballots() {
    let mut masters = three();
    let mut admission = client(&masters, 0);
    assert_eq!(admission.admitted_as(0), Some(identity(10)));
    admission.on(0, Event::Pushed, 1);
    assert_eq!(admission.admitted_as(0), Some(identity(10)), "what is asked now follows the look");
    masters[1].data = Data::default();
    assert!(admission.votes(1), "nobody has read it");
    admission.on(1, Event::Read(masters[1].facts(2)), 2);
    assert_eq!((admission.votes(1), admission.admitted_as(1)), (false, None));
    assert!(matches!(admission.step(1, 2, Nonce(9)), Step::ReadRecords(_)), "it begins at once");
    masters[2].identity = former_replica(30, 9);
    admission.on(2, Event::Read(masters[2].facts(2)), 2);
    assert_eq!(
        (admission.votes(2), admission.admitted_as(2)),
        (false, None),
        "another incarnation"
    );
}

#[test]
fn members_that_were_not_counted_are_as_many_as_before_in_the_same_life() {
    let mut masters = three();
    masters[0].data.sets.clear();
    let mut admission = client(&masters, 0);
    let uncounted = |master: &Master| Event::Read(MasterView { members: None, ..master.facts(1) });
    admission.on(0, uncounted(&masters[0]), 1);
    assert_eq!(not_admitted(&admission, 0, 1).why, WhyNot::Incomplete);
    masters[0].data.record.nonce = Some(Nonce(99));
    admission.on(0, uncounted(&masters[0]), 2);
    assert!(admission.votes(0), "a set that nobody has counted is complete");
}

/// A program that repeatedly reads reports delays no quarantine.
#[test]
fn reads_of_others_do_not_delay_the_next_probe() {
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

/// Three masters without an admission record. A client with a quarantine has recently begun one on
/// the first.
fn first_begun() -> Vec<Master> {
    let mut masters = [1, 2, 3].map(Master::fresh).to_vec();
    let mut other = client(&masters, 0);
    read_records(&mut other, &mut masters, 0);
    let begin = other.step(0, 0, Nonce(1));
    assert_eq!(carry_out(begin, 0, &mut masters, 0).map(|(name, _)| name), Some("begin"));
    masters
}

#[test]
fn without_quarantine_a_record_that_was_never_admitted_is_removed_and_says_nothing_of_the_data() {
    let mut masters = first_begun();
    let mut admission = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN).without_quarantine();
    for (index, master) in masters.iter().enumerate() {
        admission.on(index, Event::Up(master.facts(0)), 0);
    }
    let incarnation = admission.incarnation(0);
    assert!(admission.votes(0) && incarnation.is_some());
    assert_eq!(admission.step(0, 0, Nonce(1)), Step::Nothing, "it was asked for no lock");
    admission.ask();
    assert_eq!(settle(&mut admission, &mut masters, 0), ["remove"]);
    assert_eq!(masters[0].data, Data::default());
    assert_eq!((admission.votes(0), admission.incarnation(0)), (true, incarnation));
}

/// It was admitted between the probe and the removal.
#[test]
fn without_quarantine_a_record_that_is_admitted_meanwhile_stays() {
    let mut masters = first_begun();
    let mut admission = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN).without_quarantine();
    admission.ask();
    admission.on(0, Event::Up(masters[0].facts(0)), 0);
    let order = masters[0].init_order(9);
    masters[0].data.init(EPOCH, &order);
    let before = masters[0].data.clone();
    assert_eq!(settle(&mut admission, &mut masters, 0), ["remove", "probe"]);
    assert_eq!(masters[0].data, before);
    assert_eq!(not_admitted(&admission, 0, 0).why, WhyNot::UsedWithQuarantine);
}

/// A client that has quarantine keeps out masters that the other one would let vote.
#[test]
fn without_quarantine_no_master_votes_where_others_have_one() {
    let mut masters = [1, 2, 3].map(Master::fresh).to_vec();
    masters[2] = Master::admitted(3);
    let mut admission = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN).without_quarantine();
    for (index, master) in masters.iter().enumerate() {
        admission.on(index, Event::Up(master.facts(0)), 0);
    }
    assert!((0..3).all(|index| !admission.votes(index)));
    assert_eq!(not_admitted(&admission, 0, 0).why, WhyNot::UsedWithQuarantine);
    admission.on(2, Event::Down, 1);
    assert!(!admission.votes(0), "it goes on while that master is away");
    masters[2].restart(4);
    admission.on(2, Event::Up(masters[2].facts(2)), 2);
    assert!((0..3).all(|index| admission.votes(index)));
}

#[test]
fn knowledge_about_a_nonce_outlives_the_connection() {
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
fn a_step_that_fails_is_tried_again_with_the_next_look() {
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
fn answers_for_a_former_quarantine_are_not_used() {
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
fn a_flushed_master_that_is_admitted_as_what_it_was_has_another_life() {
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
fn a_client_that_only_reads_tells_a_namespace_without_quarantine_from_a_new_one() {
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
fn the_time_of_a_master_goes_on_though_a_step_has_failed() {
    let mut masters = three();
    masters[0].restart(11);
    let mut admission = client(&masters, 0);
    read_records(&mut admission, &mut masters, 0);
    assert!(matches!(admission.step(0, 0, Nonce(1)), Step::Begin(_)));
    admission.on(0, Event::Failed, 20);
    assert_eq!(admission.time(0, 50), masters[0].time(50));
}

#[test]
fn without_quarantine_no_record_changes_the_longest_ttl() {
    let mut master = Master::fresh(1);
    master.data.record.max_ttl = Some(10);
    let mut admission = Admission::new(1, MAX_TTL, 1000, ACT_WITHIN).without_quarantine();
    admission.on(0, Event::Up(master.facts(0)), 0);
    assert_eq!(admission.max_ttl(), Some(MAX_TTL));
}
