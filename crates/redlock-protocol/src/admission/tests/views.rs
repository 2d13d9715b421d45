//! The views of each master that a client gets from the machine.

use std::time::Duration;

use redlock_core::WhyNot;

use super::*;

fn masters(count: u64) -> Vec<Master> {
    (1..=count).map(Master::admitted).collect()
}

#[test]
fn last_process_stays_known_while_unreachable() {
    let masters = masters(3);
    let mut client = client(&masters[..2], 0);
    assert_eq!(client.process(0), Some(process(1)));
    client.on(0, Event::Down, 1);
    assert_eq!(client.process(0), Some(process(1)));
    let never = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN);
    assert_eq!(never.process(2), None);
}

#[test]
fn servers_without_our_locks_are_foreign() {
    let mut masters = masters(5);
    masters[1].role = MasterKind::Replica;
    masters[2].role = MasterKind::NotMaster;
    masters[3].role = MasterKind::Cluster;
    masters[4].up = false;
    let connected = client(&masters, 0);
    let foreign = [0, 1, 2, 3, 4].map(|master| connected.is_foreign(master));
    assert_eq!(foreign, [false, true, true, true, false]);
    let twins = client(&[Master::admitted(1), Master::admitted(1)], 0);
    assert_eq!([0, 1].map(|master| twins.is_foreign(master)), [false, true]);
}

#[test]
fn the_max_ttl_of_a_master_is_that_of_its_record() {
    let mut masters = vec![Master::admitted(1), Master::fresh(2), Master::admitted(3)];
    masters[2].role = MasterKind::Replica;
    let client = client(&masters, 0);
    let limits = [0, 1, 2].map(|master| client.max_ttl_of(master));
    assert_eq!(limits, [Some(MAX_TTL), None, None]);
}

#[test]
fn admission_is_busy_until_its_step_is_answered() {
    let mut masters = masters(3);
    masters[0].restart(4);
    let mut client = client(&masters, 0);
    assert!(!client.is_busy());
    let step = client.step(0, 0, Nonce(1));
    assert!(client.is_busy(), "{step:?}");
    let (_, event) = carry_out(step, 0, &mut masters, 0).unwrap();
    client.on(0, event, 0);
    assert!(!client.is_busy());
    for master in 1..3 {
        assert!(matches!(client.step(master, 0, Nonce(2)), Step::Nothing | Step::Wait(_)));
        assert!(!client.is_busy(), "a wait is not a pending step");
    }
}

#[test]
fn a_push_is_answered_by_one_probe() {
    let masters = masters(1);
    let mut client = client(&masters, 0);
    client.on(0, Event::Pushed, 1);
    assert!(client.is_open(0) && !client.votes(0));
    assert_eq!(client.step(0, 1, Nonce(1)), Step::Probe);
    client.on(0, Event::Probed(masters[0].facts(1)), 1);
    assert!(!client.is_open(0) && client.votes(0));
    // A push that comes while the probe is under way is not answered by it.
    client.on(0, Event::Pushed, 2);
    assert_eq!(client.step(0, 2, Nonce(2)), Step::Probe);
    client.on(0, Event::Pushed, 2);
    client.on(0, Event::Probed(masters[0].facts(2)), 2);
    assert!(client.is_open(0) && !client.votes(0));
}

/// Two of three have lost everything, and a quorum is reachable.
#[test]
fn awaits_connections_only_before_beginning_a_quarantine() {
    let mut masters = masters(3);
    masters[0].restart(4);
    masters[2].up = false;
    let mut connecting = client(&masters, 0);
    connecting.set_connecting(true);
    assert!(connecting.awaits_connections());
    let mut connected = connecting.clone();
    connected.set_connecting(false);
    assert!(!connected.awaits_connections());
    let mut unasked = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN);
    unasked.set_connecting(true);
    for (index, master) in masters.iter().enumerate().take(2) {
        unasked.on(index, Event::Up(master.facts(0)), 0);
    }
    assert!(!unasked.awaits_connections(), "no caller wants a lock");
    let off = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN).without_quarantine();
    let mut off = self::connected(off, &masters, 0);
    off.set_connecting(true);
    assert!(!off.awaits_connections());
    connecting.on(1, Event::Down, 1);
    assert!(!connecting.awaits_connections(), "one of three begins nothing");
    let mut whole = client(&self::masters(3), 0);
    whole.set_connecting(true);
    assert!(!whole.awaits_connections(), "all vote");
}

#[test]
fn non_voting_master_is_probed_after_a_second() {
    let mut masters = [Master::fresh(1)];
    let mut client = client(&masters, 0);
    settle(&mut client, &mut masters, 100);
    let Step::Wait(at) = client.step(0, 100, Nonce(9)) else { panic!("nothing is to be done now") };
    assert_eq!(at, 1_100, "one second after it was read last");
}

#[test]
fn floor_derived_from_clocks_is_reported() {
    for (away, by_clock) in [(false, false), (true, true)] {
        let mut masters = masters(3);
        masters[0].restart(4);
        let mut client = client(&masters, 0);
        settle(&mut client, &mut masters, 0);
        if away {
            masters[1].up = false;
            client.on(1, Event::Down, 1);
        }
        let mut shown = Vec::new();
        for now in [LENGTH, LENGTH + 1, 2 * LENGTH] {
            for _ in 0..3 {
                let step = client.step(0, now, Nonce(7));
                let Some((_, event)) = carry_out(step, 0, &mut masters, now) else { break };
                client.on(0, event, now);
                shown.push(client.is_floor_by_clock(0));
            }
        }
        assert_eq!(shown.contains(&true), by_clock, "{shown:?}");
    }
}

#[test]
fn failed_probe_is_repeated_after_a_second() {
    let masters = masters(1);
    let mut client = client(&masters, 0);
    client.on(0, Event::Pushed, 1);
    assert_eq!(client.step(0, 1, Nonce(1)), Step::Probe);
    client.on(0, Event::Failed, 5);
    assert_eq!(client.step(0, 6, Nonce(1)), Step::Wait(1_005));
    assert_eq!(client.step(0, 1_005, Nonce(1)), Step::Probe);
    client.on(0, Event::Probed(masters[0].facts(1_005)), 1_005);
    assert!(client.votes(0));
}

#[test]
fn reasons_why_a_master_does_not_vote() {
    let mut masters = masters(3);
    let mut client = client(&masters, 0);
    client.on(0, Event::Pushed, 1);
    assert_eq!(not_admitted(&client, 0, 1).why, WhyNot::Checked);
    // Its set has scores at which a floor would reach the end of all numbers.
    masters[1].restart(4);
    reconnect(&mut client, &masters, 1, 1);
    settle(&mut client, &mut masters, 1);
    let record = masters[1].data.record.clone();
    let too_large = Outcome::TooLarge;
    let reply = Reply { outcome: too_large, time: masters[1].time(1), record, members: 0 };
    client.on(1, Event::Script(reply), 1);
    assert_eq!(not_admitted(&client, 1, 1).why, WhyNot::ScoreTooLarge);
    assert!(matches!(client.step(1, 2, Nonce(3)), Step::Wait(_)), "it rests until the next probe");
}

/// Its members were not counted when its connection was made.
#[test]
fn refused_init_learns_of_use_without_quarantine() {
    let mut masters = [Master::fresh(1)];
    masters[0].data.off = off_set();
    let facts = MasterView { members: None, ..masters[0].facts(0) };
    let mut client = Admission::new(1, MAX_TTL, 1000, ACT_WITHIN);
    client.on(0, Event::Up(facts.clone()), 0);
    assert_eq!(not_admitted(&client, 0, 0).why, WhyNot::New);
    let answers = [masters[0].scored(0, Incarnation::of(&facts), 0)];
    let (again, far_floor, lower) = (false, false, false);
    let options = InitOptions { again, floor: 0, far_floor, max_ttl: MAX_TTL, lower };
    let plan = client
        .plan_init(
            InitInputs {
                options,
                listed: &listed(&masters),
                answers: &answers,
                nonces: &[Nonce(1)],
                ours: &[],
            },
            0,
        )
        .unwrap();
    assert!(plan.refused);
    assert_eq!(not_admitted(&client, 0, 0).why, WhyNot::UsedWithoutQuarantine);
}

/// The record proves nothing about the data to a client without quarantine.
#[test]
fn without_quarantine_an_incarnation_is_a_process() {
    let mut masters = [Master::fresh(1)];
    masters[0].data.record.nonce = Some(Nonce(7));
    let off = Admission::new(1, MAX_TTL, 1000, ACT_WITHIN).without_quarantine();
    let off = connected(off, &masters, 0);
    let incarnation = off.incarnation(0).unwrap();
    assert_eq!(incarnation, Incarnation { process: process(1), run: None, nonce: None });
    let on = client(&[Master::admitted(1)], 0).incarnation(0).unwrap();
    assert_eq!((on.run, on.nonce.is_some()), (Some(identity(1)), true));
}

#[test]
fn failed_step_puts_no_data_in_doubt() {
    let mut masters = masters(3);
    masters[0].restart(4);
    let mut client = client(&masters, 0);
    assert!(matches!(client.step(0, 0, Nonce(1)), Step::ReadRecords(_)));
    client.on(0, Event::Failed, 1);
    assert!(!client.is_open(0), "it is known what it has");
}

/// Two masters restart empty, and the third, which allows more, comes back when their quarantines
/// are under way.
#[test]
fn too_short_quarantine_begins_again() {
    let mut masters = masters(3);
    masters[2].data.record.max_ttl = Some(5 * MAX_TTL);
    masters[2].up = false;
    masters[0].restart(4);
    masters[1].restart(5);
    let mut client = client(&masters, 0);
    settle(&mut client, &mut masters, 0);
    assert_eq!(masters[0].data.record.max_ttl, Some(MAX_TTL));
    masters[2].up = true;
    client.on(2, Event::Up(masters[2].facts(100)), 100);
    let step = client.step(0, 100, Nonce(77));
    assert!(matches!(&step, Step::Begin(begin) if begin.max_ttl == 5 * MAX_TTL), "{step:?}");
    settle(&mut client, &mut masters, 101);
    let quarantined = client.step(0, 102, Nonce(78));
    assert!(!matches!(quarantined, Step::Begin(_)), "once: {quarantined:?}");
}

/// The first client has begun the quarantine and noted the TIMEs. The second stays for a moment.
#[test]
fn later_client_admits_two_lengths_after_the_notes() {
    for (now, admits) in [(2 * LENGTH - 1, false), (2 * LENGTH, true)] {
        let mut masters = masters(3);
        masters[0].restart(4);
        settle(&mut client(&masters, 0), &mut masters, 0);
        // The master's own clock jumps forward by a minute, which is not enough to end anything.
        masters[0].ahead = 60_000;
        let mut later = client(&masters, now);
        let steps = settle(&mut later, &mut masters, now);
        assert_eq!(steps.contains(&"admit"), admits, "{now}: {steps:?}");
        assert_eq!(later.votes(0), admits);
    }
}

/// The clocks of the others jump forward by a minute, but the master's own clock matters as well.
#[test]
fn time_by_visits_depends_on_the_masters_own_clock() {
    let mut masters = masters(3);
    masters[0].restart(4);
    let mut client = client(&masters, 0);
    settle(&mut client, &mut masters, 0);
    for other in 1..3 {
        masters[other].ahead = 60_000;
        reconnect(&mut client, &masters, other, 100);
    }
    let left = Duration::from_millis(2 * LENGTH - 100);
    assert_eq!(not_admitted(&client, 0, 100).by_visits, Some(left));
}

/// A nonce that is over for one process says nothing about another.
#[test]
fn past_nonces_are_known_per_process() {
    let mut masters = masters(1);
    let old = masters[0].data.clone();
    let mut client = client(&masters, 0);
    masters[0].data.record.nonce = Some(Nonce(99));
    reconnect(&mut client, &masters, 0, 1);
    masters[0].data = old.clone();
    reconnect(&mut client, &masters, 0, 2);
    assert_eq!(not_admitted(&client, 0, 2).why, WhyNot::Outdated);
    masters[0].restart(2);
    masters[0].data = old;
    reconnect(&mut client, &masters, 0, 3);
    assert_eq!(not_admitted(&client, 0, 3).why, WhyNot::Restarted);
}
