//! Exhausts the large bounds, and finds every mutant. Prints states, depth and time.
//!
//! Names of parts or mutants as arguments choose among them.

use std::process::ExitCode;

use model::Outcome;
use model::admission::{self, Broken, Part};

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|given| given == name);
    let mut right = true;
    for part in admission::large().into_iter().filter(|part| chosen(part.name)) {
        right &= holds(&part);
    }
    let mutants = Broken::ALL.into_iter().chain(Broken::LONG);
    for broken in mutants.filter(|broken| chosen(&format!("{broken:?}"))) {
        right &= is_found(broken);
    }
    for broken in Broken::SECOND_LINES.into_iter().filter(|broken| chosen(&format!("{broken:?}"))) {
        report(&format!("{broken:?}"), &admission::check(&admission::named(broken)));
    }
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether all properties hold within the bounds of a part.
fn holds(part: &Part) -> bool {
    let outcome = admission::check(part);
    report(part.name, &outcome);
    outcome.story.is_none()
}

/// Whether the mutant has its counterexample.
fn is_found(broken: Broken) -> bool {
    let outcome = admission::check(&admission::named(broken));
    report(&format!("{broken:?}"), &outcome);
    outcome.story.is_some()
}

fn report(name: &str, outcome: &Outcome) {
    let (states, depth, time) = (outcome.states, outcome.depth, outcome.time.as_secs_f64());
    println!("{name:22} {states:>11} states  depth {depth:>3}  {time:>7.1} s");
    if let Some((property, story)) = &outcome.story {
        println!("    not true: {property}");
        for line in story {
            println!("    {line}");
        }
    }
}
