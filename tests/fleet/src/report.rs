//! `Sum` and `Found`: what was simulated, in words.

use std::fmt;
use std::time::Duration;

use crate::fleet::Outcome;
use crate::judge::Violation;
use crate::story::Story;

/// The sum of many stories.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    leases: u64,
    faults: u64,
    /// Leases and time of stories without contention and faults, and of those with them.
    calm: (u64, Duration),
    troubled: (u64, Duration),
}

/// A story that breaks a promise, without the faults that it does not need.
#[derive(Clone, Debug)]
pub struct Found {
    /// The story.
    pub story: Story,
    /// The broken promise.
    pub violation: Violation,
}

impl Sum {
    /// Adds a story that took so long.
    pub fn add(&mut self, story: &Story, outcome: &Outcome, took: Duration) {
        self.leases += outcome.leases;
        self.faults += outcome.faults;
        let kind = if story.is_calm() { &mut self.calm } else { &mut self.troubled };
        kind.0 += outcome.leases;
        kind.1 += took;
    }

    /// Returns how many leases a minute were simulated: without contention and faults, and with
    /// them.
    pub fn rates(&self) -> [u64; 2] {
        [self.calm, self.troubled].map(|(leases, took)| {
            (leases as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE) * 60.0) as u64
        })
    }

    /// Returns the last line of a run.
    pub fn last_line(&self, found: Option<&Found>) -> String {
        let done = format!("{self}");
        match found {
            None => format!("simulated: {done}, 0 violations"),
            Some(found) => format!("simulated: {done}, 1 violation, {found}"),
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} leases, {} faults", grouped(self.leases), grouped(self.faults))
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { story, violation } = self;
        write!(f, "seed {}: {}; ", story.seed, story.setup)?;
        let mut faults = story.faults.clone();
        faults.sort_by_key(|fault| fault.at);
        for fault in &faults {
            write!(f, "{fault}; ")?;
        }
        if faults.is_empty() {
            f.write_str("no faults; ")?;
        }
        write!(f, "{violation}")
    }
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_has_the_seed_and_the_story_of_a_violation() {
        let story = Story::calm(7);
        let mut sum = Sum::default();
        let outcome = Outcome { leases: 1_234_567, faults: 0, violation: None };
        sum.add(&story, &outcome, Duration::from_secs(60));
        assert_eq!(sum.last_line(None), "simulated: 1,234,567 leases, 0 faults, 0 violations");
        assert_eq!(sum.rates(), [1_234_567, 0]);
        let found = Found { story, violation: Violation::Residue("keys are left".into()) };
        let line = sum.last_line(Some(&found));
        assert!(line.starts_with("simulated: 1,234,567 leases, 0 faults, 1 violation, seed 7: "));
        assert!(line.ends_with("; no faults; keys are left"), "{line}");
    }
}
