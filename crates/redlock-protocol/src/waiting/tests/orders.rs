//! Any order of events.

use std::collections::HashSet;

use proptest::prelude::*;
use redlock_core::Call;

use super::world::{Event, Place, Said, World};
use crate::waiting::Refusal;

const REFUSALS: [Refusal; 5] =
    [Refusal::Held, Refusal::Split, Refusal::Alone, Refusal::Silent, Refusal::NoQuorum];
const CALLS: [Call; 3] = [Call::Go, Call::Next, Call::Try];
const WAITERS: u32 = 2;
const MASTERS: usize = 2;
const EVENTS_MAX: u32 = 6;

/// An event of one waiter or one master, with the bit that shows whether it has happened.
fn events() -> Vec<(u32, Event)> {
    let mut events = Vec::new();
    let mut bit = 0;
    let mut add = |outcomes: Vec<Event>| {
        events.extend(outcomes.into_iter().map(|event| (1 << bit, event)));
        bit += 1;
    };
    for master in 0..MASTERS {
        add(vec![Event::Pushed(master)]);
        add(vec![Event::LostSight(master)]);
        add(CALLS.map(|call| Event::Called(master, call)).to_vec());
        add(Said::ALL.map(|said| Event::Answer(master, said)).to_vec());
    }
    for waiter in 1..=WAITERS {
        add(vec![Event::Due]);
        add(vec![Event::Leave(waiter)]);
        let lost = REFUSALS.map(Event::Lost);
        let others = [Event::Won, Event::LostHere, Event::LostForWantOfVotes];
        let answer = Place::ALL.map(Event::NotLetIn);
        add(others.into_iter().chain(lost).chain(answer).collect());
        add(vec![Event::Released]);
    }
    events
}

/// Two callers: before the first attempt has ended, while their own process holds the key, and
/// while the first of them watches.
fn starts() -> [World; 3] {
    let join = |is_held_here| Event::Join { is_held_here };
    let held = Event::Lost(Refusal::Held);
    let watch = [held, Event::NotLetIn(Place::First), Event::Answer(0, Said::Held)];
    [
        World::after(&[join(false), join(false)]),
        World::after(&[join(true), join(true)]),
        World::after(&[join(false), join(false), watch[0], watch[1], watch[2]]),
    ]
}

/// Each event happens at most once to a waiter and a master. Orders that lead to the same state are
/// followed once. [`World::happen`] has the rules.
#[test]
fn no_order_of_six_events_of_two_waiters_breaks_a_rule() {
    let events = events();
    let mut states: HashSet<(u32, World)> = starts().map(|world| (0, world)).into();
    let mut seen = 0;
    for _ in 0..EVENTS_MAX {
        let mut next = HashSet::new();
        for (happened, world) in &states {
            for (bit, event) in events.iter().filter(|(bit, _)| happened & bit == 0) {
                let mut after = world.clone();
                after.happen(*event);
                // An event without effect is skipped.
                if after != *world {
                    next.insert((happened | bit, after));
                }
            }
        }
        seen += next.len();
        states = next;
    }
    assert!(seen > 20_000, "only {seen} states: events do not happen");
}

/// From every state that events lead to, all that wait are served in their order, once the key is
/// free and masters answer.
fn serve_all(mut world: World) {
    let waiting: Vec<u32> = world.waiting.callers().collect();
    let mut served = Vec::new();
    for _ in 0..100 {
        if let Some(caller) = world.attempting {
            served.push(caller);
            world.happen(Event::Won);
            world.happen(Event::Released);
        } else if let Some(at) = world.asked {
            world.happen(Event::Answer(at, Said::Free));
        } else {
            world.happen(Event::Due);
        }
    }
    assert_eq!(served, waiting);
}

fn any_event() -> impl Strategy<Value = Event> {
    let master = 0..MASTERS;
    prop_oneof![
        any::<bool>().prop_map(|is_held_here| Event::Join { is_held_here }),
        Just(Event::Won),
        prop::sample::select(&REFUSALS[..]).prop_map(Event::Lost),
        Just(Event::LostHere),
        Just(Event::LostForWantOfVotes),
        Just(Event::VotesGained),
        Just(Event::Released),
        (master.clone(), prop::sample::select(&Said::ALL[..]))
            .prop_map(|(master, said)| Event::Answer(master, said)),
        master.clone().prop_map(Event::Pushed),
        (master.clone(), prop::sample::select(&CALLS[..]))
            .prop_map(|(master, call)| Event::Called(master, call)),
        prop::sample::select(&Place::ALL[..]).prop_map(Event::NotLetIn),
        master.prop_map(Event::LostSight),
        Just(Event::Due),
        Just(Event::LeaveFirst),
        Just(Event::LeaveLast),
    ]
}

proptest! {
    #[test]
    fn no_long_run_leads_to_a_dead_end(events in prop::collection::vec(any_event(), 0..200)) {
        World::after(&events);
    }

    #[test]
    fn callers_are_served_in_the_order_in_which_they_asked(
        events in prop::collection::vec(any_event(), 0..60),
    ) {
        serve_all(World::after(&events));
    }
}
