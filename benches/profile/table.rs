//! The report: totals of all contestants side by side, and their shares by place.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;

use crate::support::stats::folder;

/// Counters by place.
#[derive(Default)]
pub struct Counts(BTreeMap<String, f64>);

impl Counts {
    pub fn add(&mut self, place: &str, count: f64) {
        *self.0.entry(place.to_owned()).or_default() += count;
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the excess over `fewer`.
    pub fn less(mut self, fewer: Self) -> Self {
        for (place, count) in fewer.0 {
            *self.0.entry(place).or_default() -= count;
        }
        self
    }

    /// Returns the share of each of this many.
    pub fn each(mut self, number: usize) -> Self {
        self.0.values_mut().for_each(|count| *count /= number as f64);
        self
    }

    fn total(&self) -> f64 {
        self.0.values().sum()
    }

    /// The places with at least `least`, the largest first.
    fn largest(&self, least: f64) -> Vec<(&str, f64)> {
        let mut places: Vec<_> =
            self.0.iter().map(|(place, count)| (place.as_str(), *count)).collect();
        places.retain(|(_, count)| *count >= least);
        places.sort_by(|one, other| other.1.total_cmp(&one.1));
        places
    }
}

/// The cost of a lock for one contestant.
pub struct Count {
    pub who: String,
    pub instructions: Counts,
    pub allocations: Counts,
    pub calls: Counts,
}

/// The report, printed as it is made, and saved with the reports of the benches.
pub struct Table(File);

impl Table {
    pub fn begin() -> anyhow::Result<Self> {
        Ok(Self(File::create(folder()?.join("profile.md"))?))
    }

    /// Reports one number of tasks, with all contestants.
    pub fn case(&mut self, tasks: usize, counts: &[Count]) -> anyhow::Result<()> {
        self.line(&format!(
            "\n## {tasks} task(s), current_thread, five masters: acquire and release\n\n\
             | a lock | instructions | allocations | system calls |\n|---|---|---|---|"
        ))?;
        for Count { who, instructions, allocations, calls } in counts {
            let (instructions, allocations) = (instructions.total(), allocations.total());
            let calls = calls.total();
            self.line(&format!("| {who} | {instructions:.0} | {allocations:.2} | {calls:.2} |"))?;
        }
        counts.iter().try_for_each(|count| self.places(count))
    }

    fn places(&mut self, count: &Count) -> anyhow::Result<()> {
        let Count { who, instructions, allocations, calls } = count;
        for (what, counts, least, decimals) in [
            ("Instructions", instructions, 50.0, 0),
            ("Allocations", allocations, 0.01, 2),
            ("System calls", calls, 0.01, 2),
        ] {
            self.line(&format!("\n{what} of {who}:\n"))?;
            for (place, number) in counts.largest(least) {
                self.line(&format!("{number:10.decimals$}  {place}"))?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        println!("{line}");
        Ok(writeln!(self.0, "{line}")?)
    }
}
