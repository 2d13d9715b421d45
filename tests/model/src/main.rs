//! Exhausts the large bounds, and finds every mutant. Prints states, depth and time.
//!
//! Words as arguments choose those whose name begins with them: `locks`, `admission OneValue`.

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use model::{Outcome, admission, clients, locks};

fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let run = Run { wanted };
    let is_right = run.locks() & run.clients() & run.admission();
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Run {
    wanted: String,
}

impl Run {
    /// Returns `true` if everything selected is as expected.
    fn locks(&self) -> bool {
        use locks::{Broken, check, large, named};
        let mut right = true;
        for part in large() {
            right &= self.holds(&format!("locks {}", part.name), || check(&part));
        }
        right &= self.are_found("locks", &Broken::ALL, |broken| check(&named(broken)));
        for broken in Broken::LONG {
            right &= self.is_found(&format!("locks {broken:?}"), || check(&named(broken)));
        }
        right
    }

    fn clients(&self) -> bool {
        use clients::{Broken, check, large, named};
        let mut right = true;
        for part in large() {
            right &= self.holds(&format!("clients {}", part.name), || check(&part));
        }
        right & self.are_found("clients", &Broken::ALL, |broken| check(&named(broken)))
    }

    fn admission(&self) -> bool {
        use admission::{Broken, check, large, named};
        let mut right = true;
        for part in large() {
            right &= self.holds(&format!("admission {}", part.name), || check(&part));
        }
        right &= self.are_found("admission", &Broken::ALL, |broken| check(&named(broken)));
        for broken in Broken::LONG {
            right &= self.is_found(&format!("admission {broken:?}"), || check(&named(broken)));
        }
        for broken in Broken::SECOND_LINES {
            self.run(&format!("admission {broken:?}"), || check(&named(broken)));
        }
        right
    }

    /// Whether each mutant has its counterexample. A search breadth first uses one core, so two run
    /// at a time.
    fn are_found<B: Copy + Debug + Sync>(
        &self,
        model: &str,
        mutants: &[B],
        check: impl Fn(B) -> Outcome + Sync,
    ) -> bool {
        let next = AtomicUsize::new(0);
        let search = || {
            let mut right = true;
            while let Some(broken) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                right &= self.is_found(&format!("{model} {broken:?}"), || check(*broken));
            }
            right
        };
        thread::scope(|scope| {
            let other = scope.spawn(search);
            search() & other.join().unwrap_or(false)
        })
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
    let mut text = format!("{name:30} {states:>11} states  depth {depth:>3}  {time:>7.1} s");
    if let Some((property, story)) = &outcome.story {
        text += &format!("\n    not true: {property}");
        story.iter().for_each(|line| text += &format!("\n    {line}"));
    }
    println!("{text}");
}
