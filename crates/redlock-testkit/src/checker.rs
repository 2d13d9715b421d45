//! The checker: did two contenders ever claim one resource at the same time?

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use redlock_core::Instant;

use crate::{Event, Record};

mod fires;
mod tokens;

pub use fires::{Completed, Repeat, check_fires};
pub use tokens::{Disorder, Fenced, TokenOrder, TokenRule, check_tokens};

/// A time during which a contender claimed to hold a resource: from `from` up to, not including,
/// `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// Of which resource.
    pub resource: Arc<str>,
    /// The number of the contender.
    pub contender: usize,
    /// Signed with which token.
    pub token: Arc<str>,
    /// When the grant returned.
    pub from: Instant,
    /// The end of the claim: its release, its loss, or the end of the lease as known at that time,
    /// whichever came first.
    pub to: Instant,
}

/// Two holders of one resource at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overlap {
    /// The claim that came first.
    pub first: Claim,
    /// The claim that came while the first one lasted.
    pub second: Claim,
}

/// Keys that are left when all locks are released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residue(Vec<(String, usize)>);

/// Judges mutual exclusion while a history is written, which may be of any length: it keeps the
/// present claims, and ended claims that overlap with a present claim.
#[derive(Debug, Default)]
pub struct Exclusion {
    resources: HashMap<Arc<str>, Claims>,
    judged: usize,
}

/// The claims on one resource.
#[derive(Debug, Default)]
struct Claims {
    open: Vec<Claim>,
    ended: Vec<Claim>,
}

/// Judges mutual exclusion. Returns how many claims there were: a history without any proves
/// nothing.
///
/// # Errors
/// Two claims of different holders on one resource that overlap.
pub fn check(history: &[Record]) -> Result<usize, Box<Overlap>> {
    let mut exclusion = Exclusion::default();
    history.iter().try_for_each(|record| exclusion.record(record))?;
    exclusion.finish()
}

impl Exclusion {
    /// Takes the next record. A claim is judged when it ends.
    ///
    /// # Errors
    /// A claim that overlaps with one of another holder on the same resource.
    pub fn record(&mut self, record: &Record) -> Result<(), Box<Overlap>> {
        let claims = match self.resources.get_mut(&record.resource) {
            Some(claims) => claims,
            None => self.resources.entry(record.resource.clone()).or_default(),
        };
        match record.event {
            Event::Granted { until } => claims.granted(record, until),
            Event::Released | Event::Lost => {
                if let Some(claim) = claims.end(record) {
                    self.judged += claims.judge(claim)?;
                    claims.forget(record.at);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Judges the claims that last, and returns how many there were.
    ///
    /// # Errors
    /// The same as of [`record`](Self::record).
    pub fn finish(mut self) -> Result<usize, Box<Overlap>> {
        for claims in self.resources.values_mut() {
            for claim in std::mem::take(&mut claims.open) {
                self.judged += claims.judge(claim)?;
            }
        }
        Ok(self.judged)
    }
}

impl Claims {
    /// A contender that extends, even too late, claims to have held it all the time.
    fn granted(&mut self, record: &Record, until: Instant) {
        match self.open.iter_mut().find(|claim| claim.is_of(record)) {
            Some(claim) => claim.to = until,
            None => self.open.push(Claim {
                resource: record.resource.clone(),
                contender: record.contender,
                token: record.token.clone(),
                from: record.at,
                to: until,
            }),
        }
    }

    fn end(&mut self, record: &Record) -> Option<Claim> {
        let at = self.open.iter().position(|claim| claim.is_of(record))?;
        let mut claim = self.open.swap_remove(at);
        claim.to = claim.to.min(record.at);
        Some(claim)
    }

    /// Compares a claim with ended claims. Returns 1, or 0 if the claim has no length.
    fn judge(&mut self, claim: Claim) -> Result<usize, Box<Overlap>> {
        if claim.from >= claim.to {
            return Ok(0);
        }
        // Claims of one holder follow each other, or they would be one claim.
        let overlaps = |other: &&Claim| other.from < claim.to && claim.from < other.to;
        if let Some(other) = self.ended.iter().find(overlaps) {
            let (first, second) = match other.from <= claim.from {
                true => (other.clone(), claim),
                false => (claim, other.clone()),
            };
            return Err(Box::new(Overlap { first, second }));
        }
        self.ended.push(claim);
        Ok(1)
    }

    /// Forgets the claims that overlap neither a present nor a future claim.
    fn forget(&mut self, now: Instant) {
        let first = self.open.iter().map(|claim| claim.from).min().map_or(now, |at| at.min(now));
        self.ended.retain(|claim| claim.to > first);
    }
}

impl Claim {
    fn is_of(&self, record: &Record) -> bool {
        self.contender == record.contender && self.token == record.token
    }
}

/// Judges the end of a test: once all locks are released, no master has a key left.
///
/// # Errors
/// The masters that have some, and how many.
pub fn no_residue(keys: impl IntoIterator<Item = (String, usize)>) -> Result<(), Residue> {
    let left: Vec<_> = keys.into_iter().filter(|(_, keys)| *keys > 0).collect();
    if left.is_empty() { Ok(()) } else { Err(Residue(left)) }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { contender, token, from, to, .. } = self;
        write!(f, "contender {contender} from {from:?} to {to:?} (token {token})")
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second } = self;
        write!(f, "two holders of {:?}: {first}, and {second}", first.resource)
    }
}

impl fmt::Display for Residue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.0.iter().map(|(name, keys)| format!("{keys} on {name}"));
        write!(f, "keys are left: {}", lines.collect::<Vec<_>>().join(", "))
    }
}

impl Error for Overlap {}
impl Error for Residue {}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn record(millis: u64, contender: usize, event: Event) -> Record {
        let token = format!("t{contender}").into();
        Record { at: at(millis), contender, resource: "r".into(), token, event }
    }

    fn granted(millis: u64, contender: usize, until: u64) -> Record {
        record(millis, contender, Event::Granted { until: at(until) })
    }

    #[test]
    fn successive_holders_are_valid() {
        let history = [
            granted(0, 1, 100),
            record(50, 1, Event::Released),
            granted(50, 2, 150),
            granted(150, 3, 250),
            record(160, 3, Event::Lost),
            granted(160, 1, 260),
        ];
        assert_eq!(check(&history), Ok(4));
    }

    #[test]
    fn two_holders_at_one_time_are_described() {
        let overlap = check(&[granted(0, 1, 100), granted(99, 2, 199)]).unwrap_err();
        assert_eq!(
            overlap.to_string(),
            "two holders of \"r\": contender 1 from 0ns to 100ms (token t1), \
             and contender 2 from 99ms to 199ms (token t2)"
        );
    }

    #[test]
    fn empty_claim_is_ignored() {
        assert_eq!(check(&[granted(0, 1, 100), granted(50, 2, 50)]), Ok(1));
    }

    #[test]
    fn each_resource_is_judged_by_itself() {
        let other = Record { resource: "other".into(), ..granted(30, 2, 40) };
        let history = [granted(0, 1, 100), other, granted(100, 3, 110)];
        assert_eq!(check(&history), Ok(3));
        let history = [&history[..], &[granted(105, 4, 120)]].concat();
        assert_eq!(check(&history).unwrap_err().first.contender, 3);
    }

    #[test]
    fn order_of_records_between_contenders_is_irrelevant() {
        assert_eq!(check(&[granted(50, 2, 60), granted(0, 1, 40)]), Ok(2));
        assert!(check(&[granted(50, 2, 60), granted(0, 1, 51)]).is_err());
    }

    #[test]
    fn extension_also_covers_a_gap() {
        let extended = [granted(0, 1, 100), granted(90, 1, 190), granted(180, 2, 280)];
        assert!(check(&extended).is_err());
        let revived = [granted(0, 1, 100), granted(110, 2, 115), granted(120, 1, 220)];
        assert!(check(&revived).is_err());
        let again = [granted(0, 1, 100), record(100, 1, Event::Lost), granted(110, 2, 115)];
        assert_eq!(check(&[&again[..], &[granted(120, 1, 220)]].concat()), Ok(3));
    }

    #[test]
    fn later_end_does_not_prolong_the_lease() {
        let history = [granted(0, 1, 100), granted(120, 2, 220), record(150, 1, Event::Released)];
        assert_eq!(check(&history), Ok(2));
    }

    #[test]
    fn long_history_is_checked_in_little_memory() {
        let mut exclusion = Exclusion::default();
        for lock in 0..1_000 {
            exclusion.record(&granted(lock * 10, 1, lock * 10 + 100)).unwrap();
            exclusion.record(&record(lock * 10 + 9, 1, Event::Released)).unwrap();
        }
        assert!(exclusion.resources["r"].ended.len() <= 1);
        assert_eq!(exclusion.finish(), Ok(1_000));
    }

    #[test]
    fn claim_within_a_longer_one_is_found() {
        let history = [
            granted(0, 1, 100),
            granted(10, 2, 20),
            record(15, 2, Event::Released),
            granted(30, 3, 40),
        ];
        let overlap = check(&history).unwrap_err();
        assert_eq!((overlap.first.contender, overlap.second.contender), (1, 2));
    }

    #[test]
    fn remaining_keys_are_listed_by_master() {
        let keys = |left| [("a:1".to_owned(), 0), ("b:1".to_owned(), left)];
        assert_eq!(no_residue(keys(0)), Ok(()));
        assert_eq!(no_residue(keys(2)).unwrap_err().to_string(), "keys are left: 2 on b:1");
    }
}
