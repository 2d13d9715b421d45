//! The scripts, each on a separate master.

use super::*;

fn begin(master: &Master, nonce: u64) -> Begin {
    let (expect, identity, nonce) = (master.data.record.seen(), master.identity, Nonce(nonce));
    let (max_ttl, is_outdated, until) = (MAX_TTL, false, UNTIL);
    Begin { expect, identity, nonce, max_ttl, is_outdated, until }
}

fn admit(master: &Master, nonce: u64, way: Way) -> Admit {
    let (nonce, identity, set) = (Nonce(nonce), master.identity, None);
    Admit { nonce, identity, way, floor: 63, set, until: UNTIL }
}

fn in_quarantine() -> Master {
    let mut master = Master::fresh(10);
    let order = begin(&master, 1);
    assert_eq!(master.data.begin(EPOCH, &order).outcome, Outcome::Done);
    master
}

#[test]
fn an_identity_is_the_process_and_the_history_of_its_data() {
    let (plain, first, second) = (identity(1), former_replica(1, 5), former_replica(1, 6));
    for (recorded, present, same) in [
        (plain, plain, true),
        (first, first, true),
        (first, plain, true),
        (plain, first, false),
        (first, second, false),
        (plain, identity(2), false),
        (first, former_replica(2, 5), false),
    ] {
        assert_eq!(recorded.covers(present), same, "{recorded:?} for {present:?}");
    }
}

#[test]
fn begin_does_not_change_an_admitted_master() {
    let mut master = Master::admitted(10);
    let before = master.data.clone();
    let order = Begin { expect: Record::default().seen(), ..begin(&master, 1) };
    assert_eq!(master.data.begin(EPOCH, &order).outcome, Outcome::Done);
    assert_eq!(master.data, before);
}

#[test]
fn begin_compares_run_identity_and_nonce() {
    let restarted = {
        let mut master = Master::admitted(10);
        master.identity = identity(11);
        master
    };
    let seen = restarted.data.record.seen();
    for expect in [
        Seen { run: None, ..seen },
        Seen { id: Some(identity(11)), ..seen },
        Seen { nonce: None, ..seen },
        Seen { max_ttl: None, ..seen },
        Seen { max_ttl: Some(MAX_TTL + 1), ..seen },
        Seen { nonce: Some(Nonce(99)), ..seen },
    ] {
        let mut master = restarted.clone();
        let order = Begin { expect, ..begin(&master, 1) };
        assert_eq!(master.data.begin(EPOCH, &order).outcome, Outcome::Moved, "{expect:?}");
        assert_eq!(master.data, restarted.data, "{expect:?}");
    }
}

#[test]
fn begin_does_not_move_a_plausible_end() {
    for (later, moved) in [(0, false), (LENGTH, false), (9 * LENGTH, false)] {
        let mut master = in_quarantine();
        let order = begin(&master, 2);
        master.data.begin(EPOCH + later, &order);
        assert_eq!(master.data.record.nonce == Some(Nonce(2)), moved, "{later} ms later");
    }
    let mut master = in_quarantine();
    let order = begin(&master, 2);
    master.data.begin(EPOCH - 1, &order);
    assert_eq!(master.data.record.nonce, Some(Nonce(2)), "the end is too far ahead");
}

#[test]
fn notes_belong_to_one_quarantine_and_go_with_it() {
    let mut master = in_quarantine();
    let note =
        |nonce| Note { nonce: Nonce(nonce), times: vec![(process(20), EPOCH)], until: UNTIL };
    assert_eq!(master.data.note(EPOCH, &note(2)).outcome, Outcome::Moved);
    assert_eq!(master.data.note(EPOCH, &note(1)).outcome, Outcome::Done);
    let later = Note { nonce: Nonce(1), times: vec![(process(20), EPOCH + 5)], until: UNTIL };
    let reply = master.data.note(EPOCH, &later);
    let noted = reply.record.quarantine.and_then(|quarantine| quarantine.note(process(20)));
    assert_eq!(noted, Some(EPOCH), "the first TIME stays");
    let order = begin(&master, 2);
    let reply = master.data.begin(EPOCH - 1, &order);
    assert_eq!(reply.record.quarantine.map(|quarantine| quarantine.notes), Some(Vec::new()));
}

#[test]
fn admit_tests_nonce_identity_and_time() {
    for (nonce, run, way, later, outcome) in [
        (1, 10, Way::Known, LENGTH, Outcome::Done),
        (1, 10, Way::Noted, 2 * LENGTH, Outcome::Done),
        (1, 10, Way::Known, LENGTH - 1, Outcome::Early),
        (1, 10, Way::Noted, 2 * LENGTH - 1, Outcome::Early),
        (2, 10, Way::Known, LENGTH, Outcome::Moved),
        (1, 11, Way::Known, LENGTH, Outcome::Moved),
    ] {
        let mut master = in_quarantine();
        let order = Admit { identity: identity(run), ..admit(&master, nonce, way) };
        let reply = master.data.admit(EPOCH + later, &order);
        assert_eq!(reply.outcome, outcome, "{order:?} after {later}");
        assert_eq!(master.data.record.run.is_some(), outcome == Outcome::Done);
    }
}

#[test]
fn admit_writes_all_members_and_keeps_the_nonce() {
    let mut master = in_quarantine();
    let order = admit(&master, 1, Way::Known);
    let reply = master.data.admit(EPOCH + LENGTH, &order);
    let expected = Record {
        max_ttl: Some(MAX_TTL),
        run: Some(identity(10)),
        floor: Some(63),
        nonce: Some(Nonce(1)),
        quarantine: None,
        set: None,
    };
    assert_eq!((reply.record, reply.members), (expected, MEMBERS));
    assert_eq!(master.data.highest(identity(10)), 63);
    let again = master.data.admit(EPOCH + LENGTH, &order);
    assert_eq!(again.outcome, Outcome::Moved, "a late one finds no quarantine");
}

#[test]
fn a_floor_of_two_to_the_53_is_refused() {
    let mut master = in_quarantine();
    let order = Admit { floor: SCORE_END, ..admit(&master, 1, Way::Known) };
    assert_eq!(master.data.admit(EPOCH + LENGTH, &order).outcome, Outcome::TooLarge);
}

#[test]
fn begin_and_admit_refuse_masters_used_without_quarantine() {
    let mut master = in_quarantine();
    master.data.off = off_set();
    let order = admit(&master, 1, Way::Known);
    assert_eq!(master.data.admit(EPOCH + LENGTH, &order).outcome, Outcome::Mixed);
    let mut fresh = Master::fresh(20);
    fresh.data.off = off_set();
    let order = begin(&fresh, 1);
    assert_eq!(fresh.data.begin(EPOCH, &order).outcome, Outcome::Mixed);
}
