//! A copy of the data is restored into a running master.

use redlock_core::WhyNot;

use super::*;

/// Three admitted masters, a client that only reads, and what the first of them has.
fn lab() -> (Vec<Master>, Admission, Data) {
    let masters: Vec<_> = [10, 20, 30].map(Master::admitted).into();
    let mut admission = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN);
    for (index, master) in masters.iter().enumerate() {
        admission.on(index, Event::Up(master.facts(0)), 0);
    }
    let copy = masters[0].data.clone();
    (masters, admission, copy)
}

/// The first master has this data from now on, and the client learns of it.
fn put(admission: &mut Admission, masters: &mut [Master], data: &Data, now: Millis) {
    masters[0].data = data.clone();
    admission.on(0, Event::Pushed, now);
    assert_eq!(admission.step(0, now, Nonce(1)), Step::Probe);
    admission.on(0, Event::Probed(masters[0].facts(now)), now);
}

#[test]
fn restored_record_is_outdated() {
    let (mut masters, mut admission, copy) = lab();
    put(&mut admission, &mut masters, &Data::default(), 1);
    assert_eq!(not_admitted(&admission, 0, 1).why, WhyNot::Emptied);
    put(&mut admission, &mut masters, &copy, 2);
    assert!(masters[0].data.record.admits(masters[0].identity), "it reports that");
    assert_eq!(
        (admission.votes(0), admission.incarnation(0), admission.admitted_as(0)),
        (false, None, None)
    );
    assert_eq!(not_admitted(&admission, 0, 2).why, WhyNot::Outdated);
    reconnect(&mut admission, &masters, 0, 3);
    assert!(!admission.votes(0), "it outlives the connection");
}

#[test]
fn outdated_record_leads_to_a_quarantine() {
    let (mut masters, mut admission, copy) = lab();
    put(&mut admission, &mut masters, &Data::default(), 1);
    put(&mut admission, &mut masters, &copy, 2);
    admission.ask();
    let steps = settle(&mut admission, &mut masters, 2);
    assert!(steps.starts_with(&["records", "begin"]), "{steps:?}");
    assert_ne!(masters[0].data.record.nonce, copy.record.nonce);
    for now in 2..2 + LENGTH {
        settle(&mut admission, &mut masters, now);
        assert!(!admission.votes(0), "at {now}");
    }
    settle(&mut admission, &mut masters, 2 + LENGTH);
    assert!(admission.votes(0));
}

#[test]
fn a_record_from_before_the_latest_quarantine_is_not_accepted() {
    let (mut masters, mut admission, copy) = lab();
    admission.ask();
    put(&mut admission, &mut masters, &Data::default(), 1);
    settle(&mut admission, &mut masters, 1);
    settle(&mut admission, &mut masters, 1 + LENGTH);
    assert!(admission.votes(0));
    put(&mut admission, &mut masters, &copy, 2 + LENGTH);
    assert_eq!(not_admitted(&admission, 0, 2 + LENGTH).why, WhyNot::Outdated);
}

/// The nonce is the same, and has been known for long.
#[test]
fn restored_quarantine_is_outdated() {
    let (mut masters, mut admission, _) = lab();
    admission.ask();
    put(&mut admission, &mut masters, &Data::default(), 1);
    settle(&mut admission, &mut masters, 1);
    let copy = masters[0].data.clone();
    settle(&mut admission, &mut masters, 1 + LENGTH);
    assert!(admission.votes(0));
    let now = 2 + LENGTH;
    put(&mut admission, &mut masters, &copy, now);
    assert_eq!(not_admitted(&admission, 0, now).why, WhyNot::Outdated);
    assert!(!not_admitted(&admission, 0, now).in_quarantine);
    settle(&mut admission, &mut masters, now);
    assert_ne!(masters[0].data.record.nonce, copy.record.nonce);
    assert!(!admission.votes(0), "the whole length starts again");
}

/// A score in old data does not cover the ballots that were accepted since.
#[test]
fn scores_of_an_outdated_record_prove_no_floor() {
    let (mut masters, mut admission, copy) = lab();
    let incarnation = admission.incarnation(0).unwrap();
    let answer = masters[0].scored(0, incarnation, 1);
    assert!(admission.is_proven(&answer));
    put(&mut admission, &mut masters, &Data::default(), 1);
    put(&mut admission, &mut masters, &copy, 2);
    assert!(!admission.is_proven(&answer));
}

/// It may have allowed less than the locks that were lost with it.
#[test]
fn outdated_max_ttl_does_not_shorten_a_quarantine() {
    let (mut masters, mut admission, copy) = lab();
    let mut raised = Data::default();
    raised.record.max_ttl = Some(3 * MAX_TTL);
    put(&mut admission, &mut masters, &raised, 1);
    put(&mut admission, &mut masters, &copy, 2);
    admission.ask();
    settle(&mut admission, &mut masters, 2);
    assert_eq!(masters[0].data.record.max_ttl, Some(3 * MAX_TTL));
}

/// Neither an empty record nor a later one was read: nothing distinguishes the copy from the
/// present data.
#[test]
fn a_loss_undone_between_two_probes_cannot_be_seen() {
    let (mut masters, mut admission, copy) = lab();
    put(&mut admission, &mut masters, &copy, 1);
    assert!(admission.votes(0));
}
