//! The small bounds hold, and every mutant is found.

use std::fmt::Debug;

use model::{Outcome, admission, clients, locks};

/// The length of a story that a reader can follow.
const STORY_LINES: usize = 25;

fn holds(name: &str, least: usize, outcome: &Outcome) {
    println!("{name}: {} states, depth {}", outcome.states, outcome.depth);
    assert_eq!(outcome.story, None, "{name}");
    assert!(outcome.states > least, "{name} explores nothing");
}

fn is_found(broken: impl Debug, outcome: Outcome) {
    let Some((property, story)) = outcome.story else {
        panic!("{broken:?} is not found in {} states", outcome.states)
    };
    println!("{broken:?}: not true that {property}");
    for line in &story {
        println!("    {line}");
    }
    assert!(story.len() <= STORY_LINES, "{broken:?} takes {} lines", story.len());
}

#[test]
fn the_small_bounds_of_locks_hold() {
    for part in locks::small() {
        holds(part.name, 1000, &locks::check(&part));
    }
}

#[test]
fn the_small_bounds_of_admission_hold() {
    for part in admission::small() {
        holds(part.name, 1000, &admission::check(&part));
    }
}

#[test]
fn the_small_bounds_of_clients_hold() {
    for part in clients::small() {
        holds(part.name, 50, &clients::check(&part));
    }
}

#[test]
fn every_mutant_of_clients_is_found() {
    for broken in clients::Broken::ALL {
        is_found(broken, clients::check(&clients::named(broken)));
    }
}

#[test]
fn every_mutant_of_locks_is_found() {
    for broken in locks::Broken::ALL {
        is_found(broken, locks::check(&locks::named(broken)));
    }
}

#[test]
fn every_mutant_of_admission_is_found() {
    for broken in admission::Broken::ALL {
        is_found(broken, admission::check(&admission::named(broken)));
    }
}
