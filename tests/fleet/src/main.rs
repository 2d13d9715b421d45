//! `make simulate`: plays one story after the other for a given time. The first story has the given
//! seed, the next one the next seed, and so on.

use std::env;
use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fleet::{Found, Story, Sum};

/// How often a terminal shows the progress.
const PROGRESS: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let given: Option<Vec<u64>> = env::args().skip(1).map(|given| given.parse().ok()).collect();
    let Some([seconds, seed]) = given.as_deref() else {
        eprintln!("usage: fleet SECONDS SEED, both whole numbers");
        return ExitCode::from(64);
    };
    let mut sum = Sum::default();
    let found = simulate(Duration::from_secs(*seconds), *seed, &mut sum);
    let [calm, troubled] = sum.rates();
    println!("leases a minute: {calm} without contention and faults, {troubled} with them");
    println!("{}", sum.last_line(found.as_ref()));
    if let Some(found) = &found {
        eprintln!("replay it with: make simulate SECONDS=1 SEED={}", found.story.seed());
    }
    ExitCode::from(u8::from(found.is_some()))
}

/// Plays stories for so long. Returns the first one that breaks a promise.
fn simulate(time: Duration, seed: u64, sum: &mut Sum) -> Option<Found> {
    let (begin, mut shown) = (Instant::now(), Instant::now());
    let is_terminal = stderr().is_terminal();
    for seed in seed.. {
        let story = Story::of(seed);
        let began = Instant::now();
        let outcome = story.play();
        sum.add(&story, &outcome, began.elapsed());
        if is_terminal && shown.elapsed() >= PROGRESS {
            shown = Instant::now();
            show(&format!("{:3} s, seed {seed}: {sum}", begin.elapsed().as_secs()));
        }
        if let Some(violation) = outcome.violation {
            let (story, violation) = story.shrink(violation, Story::play);
            return Some(Found { story, violation });
        }
        if begin.elapsed() >= time {
            break;
        }
    }
    if is_terminal {
        show("");
    }
    None
}

/// Replaces the line of progress. A terminal that is gone needs none.
fn show(line: &str) {
    let mut terminal = stderr();
    let _ = write!(terminal, "\r\x1b[K{line}");
    let _ = terminal.flush();
}
