//! The shortest failing story: faults are left out as long as the same promise is broken.

use crate::fleet::Outcome;
use crate::judge::Violation;
use crate::story::Story;

impl Story {
    /// Returns the story without the faults that are not needed for this violation, and the
    /// violation of that story. `play` plays a story.
    pub fn shrink(
        mut self,
        mut violation: Violation,
        play: impl Fn(&Self) -> Outcome,
    ) -> (Self, Violation) {
        let fails = |story: &Self, like: &Violation| {
            play(story).violation.filter(|found| found.is_like(like))
        };
        // First large parts are left out, then smaller ones, and at last each by itself until none
        // can be left out.
        let mut part = self.faults.len();
        while part > 0 {
            let (mut at, before) = (0, self.faults.len());
            while at < self.faults.len() {
                let mut shorter = self.clone();
                shorter.faults.drain(at..(at + part).min(shorter.faults.len()));
                match fails(&shorter, &violation) {
                    Some(found) => (self, violation) = (shorter, found),
                    None => at += part,
                }
            }
            if part > 1 || self.faults.len() == before {
                part /= 2;
            }
        }
        (self, violation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::Setup;

    #[test]
    fn unneeded_faults_are_removed() {
        let story = (0..).map(|seed| Story::troubled(seed, Setup::of(seed)));
        let story = story.into_iter().find(|story| story.faults.len() > 12).unwrap();
        let needed = |story: &Story| {
            let has = |number| story.faults.iter().any(|fault| fault.number == number);
            has(3) && has(11)
        };
        let play = |story: &Story| Outcome {
            leases: 0,
            faults: 0,
            violation: needed(story).then(|| Violation::Exclusion(String::new())),
        };
        let (short, _) = story.shrink(Violation::Exclusion(String::new()), play);
        let numbers: Vec<_> = short.faults.iter().map(|fault| fault.number).collect();
        assert_eq!(numbers, [3, 11]);
    }
}
