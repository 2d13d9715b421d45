//! Exhausts the large bounds, and finds every mutant. Prints states, depth and time.
//!
//! Words as arguments choose those whose name begins with them: `locks`, `admission OneValue`.

use std::process::ExitCode;

use model::{Outcome, admission, locks};

fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let run = Run { wanted };
    if run.locks() & run.admission() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Run {
    wanted: String,
}

impl Run {
    /// Returns `true` if everything selected is as expected.
    fn locks(&self) -> bool {
        let mut right = true;
        for part in locks::large() {
            right &= self.holds(&format!("locks {}", part.name), || locks::check(&part));
        }
        for broken in locks::Broken::ALL.into_iter().chain(locks::Broken::LONG) {
            let check = || locks::check(&locks::named(broken));
            right &= self.is_found(&format!("locks {broken:?}"), check);
        }
        right
    }

    fn admission(&self) -> bool {
        use admission::{Broken, check, large, named};
        let mut right = true;
        for part in large() {
            right &= self.holds(&format!("admission {}", part.name), || check(&part));
        }
        for broken in Broken::ALL.into_iter().chain(Broken::LONG) {
            right &= self.is_found(&format!("admission {broken:?}"), || check(&named(broken)));
        }
        for broken in Broken::SECOND_LINES {
            self.run(&format!("admission {broken:?}"), || check(&named(broken)));
        }
        right
    }

    /// Whether all properties hold within the bounds of a part.
    fn holds(&self, name: &str, check: impl Fn() -> Outcome) -> bool {
        self.run(name, check).is_none_or(|outcome| outcome.story.is_none())
    }

    /// Whether the mutant has its counterexample.
    fn is_found(&self, name: &str, check: impl Fn() -> Outcome) -> bool {
        self.run(name, check).is_none_or(|outcome| outcome.story.is_some())
    }

    /// Runs the selection, and reports the results.
    fn run(&self, name: &str, check: impl Fn() -> Outcome) -> Option<Outcome> {
        if !name.starts_with(&self.wanted) {
            return None;
        }
        let outcome = check();
        report(name, &outcome);
        Some(outcome)
    }
}

fn report(name: &str, outcome: &Outcome) {
    let (states, depth, time) = (outcome.states, outcome.depth, outcome.time.as_secs_f64());
    println!("{name:30} {states:>11} states  depth {depth:>3}  {time:>7.1} s");
    if let Some((property, story)) = &outcome.story {
        println!("    not true: {property}");
        for line in story {
            println!("    {line}");
        }
    }
}
