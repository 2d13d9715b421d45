//! Clients without a quarantine: which masters vote for them, and how they show their use.

use super::*;

#[test]
fn without_quarantine_empty_masters_vote_and_get_no_record() {
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
fn plain_client_shows_its_use_once_per_connection() {
    let mut masters = [1, 2, 3].map(Master::fresh).to_vec();
    let mut admission = plain_without_quarantine(&masters);
    assert!(settle(&mut admission, &mut masters, 0).is_empty(), "no lock was requested from it");
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
fn plain_client_shows_no_use_if_others_use_quarantine() {
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
fn plain_client_removes_unadmitted_records_and_shows_its_use() {
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
fn failure_to_show_use_has_no_effect() {
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
fn without_quarantine_unadmitted_record_is_removed() {
    let mut masters = first_begun();
    let mut admission = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN).without_quarantine();
    for (index, master) in masters.iter().enumerate() {
        admission.on(index, Event::Up(master.facts(0)), 0);
    }
    let incarnation = admission.incarnation(0);
    assert!(admission.votes(0) && incarnation.is_some());
    assert_eq!(admission.step(0, 0, Nonce(1)), Step::Nothing, "no lock was requested from it");
    admission.ask();
    assert_eq!(settle(&mut admission, &mut masters, 0), ["remove"]);
    assert_eq!(masters[0].data, Data::default());
    assert_eq!((admission.votes(0), admission.incarnation(0)), (true, incarnation));
}

/// It was admitted between the probe and the removal.
#[test]
fn without_quarantine_newly_admitted_record_is_kept() {
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
fn without_quarantine_no_master_votes_if_others_use_it() {
    let mut masters = [1, 2, 3].map(Master::fresh).to_vec();
    masters[2] = Master::admitted(3);
    let mut admission = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN).without_quarantine();
    for (index, master) in masters.iter().enumerate() {
        admission.on(index, Event::Up(master.facts(0)), 0);
    }
    assert!((0..3).all(|index| !admission.votes(index)));
    assert_eq!(not_admitted(&admission, 0, 0).why, WhyNot::UsedWithQuarantine);
    admission.on(2, Event::Down, 1);
    assert!(!admission.votes(0), "it continues while that master is away");
    masters[2].restart(4);
    admission.on(2, Event::Up(masters[2].facts(2)), 2);
    assert!((0..3).all(|index| admission.votes(index)));
}

#[test]
fn without_quarantine_no_record_changes_the_longest_ttl() {
    let mut master = Master::fresh(1);
    master.data.record.max_ttl = Some(10);
    let mut admission = Admission::new(1, MAX_TTL, 1000, ACT_WITHIN).without_quarantine();
    admission.on(0, Event::Up(master.facts(0)), 0);
    assert_eq!(admission.max_ttl(), Some(MAX_TTL));
}
