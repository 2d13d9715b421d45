//! The way of a master from its loss to its vote.

use super::*;

fn all_admitted(count: usize) -> Vec<Master> {
    (1..=count as u64).map(|index| Master::admitted(index * 10)).collect()
}

/// The first of three masters is in quarantine, which the client has known for its whole length.
fn at_the_end_of_a_quarantine() -> (Vec<Master>, Admission) {
    let mut masters = all_admitted(3);
    masters[0].restart(11);
    let mut admission = client(&masters, 0);
    settle(&mut admission, &mut masters, 0);
    settle(&mut admission, &mut masters, LENGTH - 1);
    (masters, admission)
}

#[test]
fn long_lived_client_ends_a_quarantine_after_its_length() {
    for count in 1..=5 {
        let mut masters = all_admitted(count);
        masters[0].restart(11);
        let mut admission = client(&masters, 0);
        let first = settle(&mut admission, &mut masters, 0);
        let expected: &[_] = if count == 1 { &["begin"] } else { &["records", "begin"] };
        assert!(first.starts_with(expected), "{count} masters: {first:?}");
        assert_eq!(first.contains(&"note"), count > 1, "{count} masters");
        settle(&mut admission, &mut masters, LENGTH - 1);
        assert!(!admission.votes(0), "{count} masters");
        let last = settle(&mut admission, &mut masters, LENGTH);
        assert_eq!(last, ["read", "admit"], "{count} masters");
        assert!(admission.votes(0), "{count} masters");
    }
}

#[test]
fn short_lived_clients_end_a_quarantine_after_two_lengths() {
    for count in 2..=5 {
        let mut masters = all_admitted(count);
        masters[0].restart(11);
        for now in [0, 1000, 2000] {
            settle(&mut client(&masters, now), &mut masters, now);
            assert!(!masters[0].data.record.admits(masters[0].identity), "{count}, at {now}");
        }
        let now = 2 * LENGTH;
        let mut last = client(&masters, now);
        assert_eq!(settle(&mut last, &mut masters, now), ["ask", "read", "admit"], "{count}");
        assert!(last.votes(0));
    }
}

#[test]
fn short_lived_clients_need_a_voting_master_to_end_a_quarantine() {
    for count in 1..=5 {
        let mut masters: Vec<_> = (1..=count).map(|index| Master::fresh(index * 10)).collect();
        for now in (0..5 * LENGTH).step_by(500) {
            settle(&mut client(&masters, now), &mut masters, now);
        }
        assert!(masters.iter().all(|master| master.data.record.run.is_none()), "{count} masters");
    }
}

#[test]
fn stepped_clock_ends_no_quarantine() {
    for stepped in 0..3 {
        let mut masters = all_admitted(3);
        masters[0].restart(11);
        settle(&mut client(&masters, 0), &mut masters, 0);
        masters[stepped].ahead = 100 * LENGTH;
        for now in [1, LENGTH - 1] {
            settle(&mut client(&masters, now), &mut masters, now);
            assert!(masters[0].data.record.run.is_none(), "clock {stepped}, at {now}");
        }
    }
}

#[test]
fn quarantine_with_an_end_far_ahead_begins_again() {
    let mut masters = all_admitted(3);
    masters[0].restart(11);
    masters[0].ahead = 100 * LENGTH;
    settle(&mut client(&masters, 0), &mut masters, 0);
    masters[0].ahead = 0;
    for now in [10, 10 + 2 * LENGTH] {
        settle(&mut client(&masters, now), &mut masters, now);
    }
    assert!(masters[0].data.record.admits(masters[0].identity));
}

#[test]
fn note_ahead_of_its_clock_is_replaced() {
    let mut masters = all_admitted(2);
    masters[0].restart(11);
    masters[1].ahead = 100 * LENGTH;
    settle(&mut client(&masters, 0), &mut masters, 0);
    masters[1].ahead = 0;
    let note = |masters: &[Master]| {
        let quarantine = masters[0].data.record.quarantine.clone();
        quarantine.and_then(|quarantine| quarantine.note(process(20)))
    };
    assert_eq!(note(&masters), Some(EPOCH + 100 * LENGTH));
    settle(&mut client(&masters, 5), &mut masters, 5);
    assert_eq!(note(&masters), Some(EPOCH + 5));
}

#[test]
fn notes_of_a_dead_process_are_replaced_by_notes_of_others() {
    let mut masters = all_admitted(3);
    masters[0].restart(11);
    masters[2].up = false;
    settle(&mut client(&masters, 0), &mut masters, 0);
    (masters[1].up, masters[2].up) = (false, true);
    for now in [100, 100 + 2 * LENGTH] {
        settle(&mut client(&masters, now), &mut masters, now);
    }
    assert!(masters[0].data.record.admits(masters[0].identity));
}

#[test]
fn the_floor_is_the_largest_score_of_enough_others() {
    for (count, others) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3)] {
        let mut masters = all_admitted(count);
        for (index, master) in masters.iter_mut().enumerate() {
            assert!(master.data.accept(master.identity, member(), 1023 + 32 * index as u64));
        }
        masters[0].restart(11);
        let mut admission = client(&masters, 0);
        settle(&mut admission, &mut masters, 0);
        settle(&mut admission, &mut masters, LENGTH);
        let by_clock = ((EPOCH / 1000 + 2 + 2) * 1_000_000) | 31;
        let expected = if others == 0 { by_clock } else { 1023 + 32 * (count as u64 - 1) };
        assert_eq!(masters[0].data.record.floor, Some(expected), "{count} masters");
    }
}

#[test]
fn floor_is_derived_from_clocks_if_too_few_others_answer() {
    for (count, away, by_clock) in [(3, 0, false), (3, 1, true), (5, 1, false), (5, 2, true)] {
        let mut masters = all_admitted(count);
        masters[0].restart(11);
        for master in masters.iter_mut().rev().take(away) {
            master.up = false;
        }
        let mut admission = client(&masters, 0);
        settle(&mut admission, &mut masters, 0);
        settle(&mut admission, &mut masters, LENGTH);
        let floor = masters[0].data.record.floor;
        assert_eq!(floor > Some(EPOCH * 1000), by_clock, "{count} masters, {away} away");
    }
}

#[test]
fn ballots_found_at_the_beginning_are_not_forgotten() {
    let mut masters = all_admitted(3);
    let identity = masters[0].identity;
    assert!(masters[0].data.accept(identity, member(), 4095));
    masters[0].identity = former_replica(10, 5);
    let mut admission = client(&masters, 0);
    settle(&mut admission, &mut masters, 0);
    assert!(masters[0].data.sets.is_empty());
    settle(&mut admission, &mut masters, LENGTH);
    assert_eq!(masters[0].data.record.floor, Some(4095));
}

#[test]
fn floor_read_too_early_is_read_again() {
    let (mut masters, mut admission) = at_the_end_of_a_quarantine();
    let read = admission.step(0, LENGTH, Nonce(9));
    let Some((_, answers)) = carry_out(read, 0, &mut masters, LENGTH) else {
        panic!("the floor is read when the time has come")
    };
    admission.on(0, answers, LENGTH);
    let admit = admission.step(0, LENGTH, Nonce(9));
    // Its clock is behind now: the script refuses.
    let Step::Admit(order) = admit else { panic!("{admit:?}") };
    let early = masters[0].data.admit(EPOCH + LENGTH - 1, &order);
    assert_eq!(early.outcome, Outcome::Early);
    admission.on(0, Event::Script(early), LENGTH);
    assert_eq!(settle(&mut admission, &mut masters, LENGTH), ["probe", "read", "admit"]);
}

#[test]
fn two_clients_beginning_together_begin_one_quarantine() {
    let mut masters = all_admitted(3);
    masters[0].restart(11);
    let mut clients = [client(&masters, 0), client(&masters, 0)];
    clients.iter_mut().for_each(|client| read_records(client, &mut masters, 0));
    let orders = clients.each_mut().map(|client| client.step(0, 0, Nonce(77)));
    for (client, order) in clients.iter_mut().zip(orders) {
        let carried = carry_out(order, 0, &mut masters, 0).map(|(_, event)| event);
        client.on(0, carried.unwrap_or(Event::Failed), 0);
    }
    let nonce = masters[0].data.record.nonce;
    for client in &mut clients {
        settle(client, &mut masters, 0);
    }
    assert_eq!((masters[0].data.record.nonce, nonce), (Some(Nonce(77)), Some(Nonce(77))));
}

#[test]
fn forgotten_replication_history_begins_no_second_quarantine() {
    let mut masters = all_admitted(3);
    masters[0].restart(11);
    masters[0].identity = former_replica(11, 5);
    settle(&mut client(&masters, 0), &mut masters, 0);
    let nonce = masters[0].data.record.nonce;
    masters[0].identity = identity(11);
    let now = 2 * LENGTH;
    settle(&mut client(&masters, now), &mut masters, now);
    assert_eq!(masters[0].data.record.nonce, nonce);
    assert_eq!(masters[0].data.record.run, Some(former_replica(11, 5)));
}

#[test]
fn score_older_than_its_masters_admission_proves_no_floor() {
    let (mut masters, mut admission) = at_the_end_of_a_quarantine();
    let Step::ReadFloor(nonce, asked) = admission.step(0, LENGTH, Nonce(9)) else {
        panic!("the floor is read when the time has come")
    };
    let scored = |masters: &[Master]| -> Vec<_> {
        let asked = asked.iter();
        asked
            .map(|&(other, incarnation)| masters[other].scored(other, incarnation, LENGTH))
            .collect()
    };
    let mut answers = scored(&masters);
    // Master 1 was admitted again, with its own floor, before its facts were read.
    masters[1].data.record.nonce = Some(Nonce(99));
    answers[1].facts = masters[1].facts(LENGTH);
    admission.on(0, Event::Floors(nonce, answers), LENGTH);
    let Step::Admit(order) = admission.step(0, LENGTH, Nonce(9)) else { panic!("it is over") };
    assert!(order.floor > EPOCH * 1000, "too few others are proven, so it rests on the clocks");
}

#[test]
fn floor_needs_the_current_nonce_and_the_masters_own_score() {
    let (masters, mut admission) = at_the_end_of_a_quarantine();
    let Step::ReadFloor(nonce, asked) = admission.step(0, LENGTH, Nonce(9)) else {
        panic!("the floor is read when the time has come")
    };
    let asked = asked.into_iter();
    let answers =
        asked.map(|(other, incarnation)| masters[other].scored(other, incarnation, LENGTH));
    let answers: Vec<_> = answers.collect();
    let others = answers.iter().filter(|answer| answer.master != 0).cloned().collect();
    for (nonce, answers, is_used) in
        [(Nonce(99), answers.clone(), false), (nonce, others, false), (nonce, answers, true)]
    {
        let mut admission = admission.clone();
        admission.on(0, Event::Floors(nonce, answers), LENGTH);
        let step = admission.step(0, LENGTH, Nonce(9));
        assert_eq!(matches!(step, Step::Admit(_)), is_used, "{step:?}");
    }
}

#[test]
fn floor_is_read_at_the_end_by_the_masters_own_clock() {
    let mut masters = all_admitted(3);
    masters[0].restart(11);
    let mut admission = client(&masters, 0);
    settle(&mut admission, &mut masters, 0);
    assert_eq!(admission.step(0, 1000, Nonce(9)), Step::Probe);
    // Its clock is slower than ours.
    admission.on(0, Event::Probed(masters[0].facts(900)), 1000);
    settle(&mut admission, &mut masters, 1000);
    assert_eq!(admission.step(0, LENGTH, Nonce(9)), Step::Wait(LENGTH + 100));
    let later = admission.step(0, LENGTH + 100, Nonce(9));
    assert!(matches!(later, Step::ReadFloor(..)), "{later:?}");
}

#[test]
fn time_of_a_replaced_process_is_not_noted() {
    for is_gone in [false, true] {
        let mut masters = all_admitted(3);
        masters[0].restart(11);
        let mut admission = client(&masters, 0);
        read_records(&mut admission, &mut masters, 0);
        let begin = admission.step(0, 0, Nonce(9));
        let (_, begun) = carry_out(begin, 0, &mut masters, 0).unwrap();
        admission.on(0, begun, 0);
        let Step::AskTimes(nonce, _) = admission.step(0, 0, Nonce(9)) else { panic!("it asks") };
        if is_gone {
            masters[1] = Master::admitted(21);
            admission.on(1, Event::Up(masters[1].facts(0)), 0);
        }
        assert!(admission.votes(1));
        let told = MasterTime { master: 1, process: process(20), time: EPOCH };
        admission.on(0, Event::Times(nonce, vec![told]), 0);
        let step = admission.step(0, 0, Nonce(9));
        assert_eq!(matches!(step, Step::Note(_)), !is_gone, "{step:?}");
    }
}

#[test]
fn two_addresses_of_one_server_give_one_record_to_the_quorum() {
    let mut masters = all_admitted(3);
    masters[0].restart(11);
    masters[1] = masters[0].clone();
    masters[2].up = false;
    let step = client(&masters, 0).step(0, 0, Nonce(9));
    assert!(matches!(step, Step::Wait(_)), "{step:?}");
}
