//! How long a quarantine is: the largest `max_ttl` that a lock of the former incarnation may have
//! had.

use std::time::Duration;

use super::*;

/// `max_ttl` of a master that allows more than the client.
const LONG: Millis = 10 * MAX_TTL;

const LOADING: MasterKind = MasterKind::Loading { uptime: 0 };

/// Two masters that lost their records, and a third with a longer `max_ttl`.
fn two_lost_and_one_long() -> Vec<Master> {
    let mut masters = vec![Master::fresh(10), Master::fresh(20), Master::admitted(30)];
    masters[2].data.record.max_ttl = Some(LONG);
    masters
}

/// The `max_ttl` with which a quarantine of the first master is begun. Of the others, those answer
/// that are up.
fn begun_with(admission: &mut Admission, masters: &[Master]) -> Millis {
    let mut step = admission.step(0, 0, Nonce(1));
    if let Step::ReadRecords(asked) = &step {
        let up = asked.iter().filter(|&&other| masters[other].up);
        let answers = up.map(|&other| (other, masters[other].facts(0)));
        admission.on(0, Event::Records(answers.collect()), 0);
        step = admission.step(0, 0, Nonce(1));
    }
    let Step::Begin(begin) = step else { panic!("{step:?}") };
    begin.max_ttl
}

#[test]
fn quarantine_uses_the_largest_recorded_max_ttl() {
    let mut masters = [10, 20, 30].map(Master::admitted).to_vec();
    masters[1].data.record.max_ttl = Some(5000);
    masters[0].restart(11);
    let mut admission = client(&masters, 0);
    assert_eq!(admission.max_ttl(), Some(MAX_TTL));
    settle(&mut admission, &mut masters, 0);
    let record = &masters[0].data.record;
    assert_eq!(record.max_ttl, Some(5000));
    let until = record.quarantine.as_ref().map(|quarantine| quarantine.until);
    assert_eq!(until, Some(EPOCH + 5500));
}

/// A client with an explicitly set `max_ttl`.
fn given(masters: &[Master]) -> Admission {
    connected(
        Admission::new(masters.len(), MAX_TTL, 1000, ACT_WITHIN).with_given_max_ttl(),
        masters,
        0,
    )
}

/// Three masters that allow less than the client.
fn short() -> Vec<Master> {
    let mut masters = [10, 20, 30].map(Master::admitted).to_vec();
    for master in &mut masters {
        master.data.record.max_ttl = Some(MAX_TTL / 2);
    }
    masters
}

#[test]
fn a_quarantine_is_no_longer_than_an_admitted_master_allows() {
    let mut masters = short();
    for n in 0..2 {
        masters[n].restart(11 + n as u64);
        assert_eq!(begun_with(&mut client(&masters, 0), &masters), MAX_TTL / 2);
        assert_eq!(begun_with(&mut given(&masters), &masters), MAX_TTL / 2);
    }
}

/// Their records may predate the last increase of `max_ttl`. A default must not lengthen every
/// quarantine after a restart of all masters.
#[test]
fn the_configured_max_ttl_applies_if_all_records_are_outdated() {
    let mut masters = short();
    for (n, master) in masters.iter_mut().enumerate() {
        master.identity = identity(11 + n as u64);
    }
    assert_eq!(begun_with(&mut client(&masters, 0), &masters), MAX_TTL / 2);
    assert_eq!(begun_with(&mut given(&masters), &masters), MAX_TTL);
    for master in &mut masters {
        master.data.record.max_ttl = Some(LONG);
    }
    assert_eq!(begun_with(&mut given(&masters), &masters), LONG);
}

/// The first quorum to answer may be exactly the masters without records.
#[test]
fn quarantine_waits_for_connections_to_masters_with_a_record() {
    let mut masters = two_lost_and_one_long();
    masters[2].up = false;
    let mut admission = client(&masters, 0);
    admission.set_connecting(true);
    assert!(admission.awaits_connections());
    assert!(matches!(admission.step(0, 0, Nonce(1)), Step::Wait(_)));
    let mut alone = admission.clone();
    alone.set_connecting(false);
    assert_eq!(begun_with(&mut alone, &masters), MAX_TTL, "the third is away");
    masters[2].up = true;
    admission.on(2, Event::Up(masters[2].facts(0)), 1);
    admission.set_connecting(false);
    assert_eq!(begun_with(&mut admission, &masters), LONG);
}

/// It was restarted as they were, and it is the one that kept its record.
#[test]
fn no_quarantine_begins_while_a_master_is_loading() {
    let mut masters = two_lost_and_one_long();
    masters[2].role = LOADING;
    masters[2].data = Data::default();
    let mut admission = client(&masters, 0);
    assert!(!admission.awaits_connections(), "no client waits for it");
    assert!(matches!(admission.step(0, 0, Nonce(1)), Step::Wait(_)));
    masters[2] = two_lost_and_one_long().remove(2);
    admission.on(2, Event::Probed(masters[2].facts(0)), 0);
    assert_eq!(begun_with(&mut admission, &masters), LONG);
}

/// Its connection may break during that time.
#[test]
fn loading_master_delays_others_for_one_quarantine_at_most() {
    let mut masters = two_lost_and_one_long();
    (masters[2].role, masters[2].data) = (LOADING, Data::default());
    let mut admission = client(&masters, 0);
    let first_begun = (0..2 * LENGTH).step_by(100).find(|&now| {
        reconnect(&mut admission, &masters, 2, now);
        settle(&mut admission, &mut masters, now).contains(&"begin")
    });
    assert_eq!(first_begun, Some(LENGTH));
}

/// A short-lived client does not see how long.
#[test]
fn no_client_waits_longer_for_a_loading_master() {
    let mut masters = two_lost_and_one_long();
    for (uptime, waits) in [(LENGTH - 1, true), (LENGTH, false)] {
        (masters[2].role, masters[2].data) = (MasterKind::Loading { uptime }, Data::default());
        let step = client(&masters, 7).step(0, 7, Nonce(1));
        assert_eq!(matches!(step, Step::Wait(_)), waits, "{uptime}: {step:?}");
    }
}

/// Nothing is begun on masters that vote: who waits for the connection would wait for nothing.
#[test]
fn masters_that_vote_wait_for_no_connection() {
    let mut masters = [10, 20, 30].map(Master::admitted).to_vec();
    masters[2].up = false;
    let mut admission = client(&masters, 0);
    admission.set_connecting(true);
    assert!(!admission.awaits_connections());
}

/// A replica keeps an older copy of another master's record.
#[test]
fn records_of_replicas_are_ignored() {
    let masters = two_lost_and_one_long();
    for role in [MasterKind::Replica, LOADING] {
        let mut admission = client(&masters, 0);
        assert_eq!(admission.step(0, 0, Nonce(1)), Step::ReadRecords(vec![1, 2]));
        let mut other = Master::admitted(20);
        (other.role, other.data.record.max_ttl) = (role, Some(2 * LONG));
        admission.on(0, Event::Records(vec![(1, other.facts(0))]), 0);
        assert_eq!(admission.step(0, 0, Nonce(1)), Step::Wait(1000), "{role:?}");
        assert_eq!(admission.longest_ttl(), LONG);
    }
}

#[test]
fn the_max_ttl_of_a_master_outlives_its_connection() {
    let mut masters = two_lost_and_one_long();
    let mut admission = client(&masters, 0);
    admission.on(2, Event::Down, 0);
    masters[2].up = false;
    assert_eq!(begun_with(&mut admission, &masters), LONG);
    assert_eq!(
        not_admitted(&admission, 1, 0).votes_again,
        Some(Duration::from_millis(11 * MAX_TTL))
    );
}

#[test]
fn the_max_ttl_of_a_lost_record_is_remembered() {
    let mut masters = two_lost_and_one_long();
    let mut admission = client(&masters, 0);
    masters[2].restart(31);
    reconnect(&mut admission, &masters, 2, 0);
    assert_eq!(begun_with(&mut admission, &masters), LONG);
}

/// A lock that was taken after the change may be as long as the new `max_ttl`.
#[test]
fn raised_max_ttl_is_read_again_after_a_loss() {
    let mut masters = [10, 20, 30].map(Master::admitted).to_vec();
    let mut admission = client(&masters, 0);
    for master in &mut masters {
        master.data.record.max_ttl = Some(LONG);
    }
    masters[0].restart(11);
    reconnect(&mut admission, &masters, 0, 0);
    assert_eq!(begun_with(&mut admission, &masters), LONG);
}

#[test]
fn only_an_admitted_master_can_lower_max_ttl() {
    for is_admitted in [false, true] {
        let mut masters = two_lost_and_one_long();
        let mut admission = client(&masters, 0);
        masters[2].data.record.max_ttl = Some(2 * MAX_TTL);
        if !is_admitted {
            masters[2].identity = identity(31);
        }
        let expected = if is_admitted { 2 * MAX_TTL } else { LONG };
        assert_eq!(begun_with(&mut admission, &masters), expected, "admitted: {is_admitted}");
    }
}

#[test]
fn no_quarantine_begins_with_records_of_less_than_a_quorum() {
    let mut masters = two_lost_and_one_long();
    masters[2].up = false;
    let mut admission = client(&masters, 0);
    let step = admission.step(0, 0, Nonce(1));
    assert_eq!(step, Step::ReadRecords(vec![1]));
    admission.on(0, Event::Records(Vec::new()), 5);
    assert_eq!(admission.step(0, 5, Nonce(1)), Step::Wait(1005));
    assert_eq!(admission.step(0, 1005, Nonce(1)), Step::Probe);
}

/// Records that were read after the first loss prove nothing about the time before the second one.
#[test]
fn records_are_read_again_after_another_loss() {
    let mut masters = two_lost_and_one_long();
    let mut admission = client(&masters, 0);
    read_records(&mut admission, &mut masters, 0);
    admission.on(0, Event::Pushed, 1);
    assert_eq!(admission.step(0, 1, Nonce(1)), Step::Probe);
    admission.on(0, Event::Probed(masters[0].facts(1)), 1);
    assert_eq!(admission.step(0, 1, Nonce(1)), Step::ReadRecords(vec![1, 2]));
}
