//! Fencing tokens: unique, and in the order of locks.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use redlock_core::Instant;

use crate::{Event, Record};

/// A lock that was returned with a fencing token.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fenced {
    /// Of which resource.
    pub resource: Arc<str>,
    /// The number of the contender.
    pub contender: usize,
    /// Its fencing token.
    pub fencing_token: u64,
    /// When it was returned.
    pub from: Instant,
    /// The end of the lease: released, lost, or run out.
    pub to: Instant,
    /// The number of the record in which its contender began to try, of the one in which it was
    /// returned, and of the one in which it ended; `None` if it ran out.
    began: usize,
    returned: usize,
    ended: Option<usize>,
}

/// Two locks whose fencing tokens break a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disorder {
    /// The broken rule.
    pub rule: TokenRule,
    /// The lock that came first.
    pub first: Fenced,
    /// The one whose token is not larger.
    pub second: Fenced,
}

/// The rules that fencing tokens of one resource keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenRule {
    /// No two locks have the same one.
    Unique,
    /// A request that begins after a lock was returned gets a larger one.
    RealTime,
    /// A lock that is returned after a lease has ended has a larger one.
    Leases,
}

/// Judges the fencing tokens of each resource. Returns how many there were: a history without any
/// proves nothing.
///
/// # Errors
/// Two locks that break a rule.
pub fn check_tokens(history: &[Record]) -> Result<usize, Box<Disorder>> {
    let fenced = fenced(history);
    let mut resources: HashMap<&str, Vec<&Fenced>> = HashMap::new();
    for one in &fenced {
        resources.entry(&one.resource).or_default().push(one);
    }
    for locks in resources.values() {
        unique(locks)?;
        // Each of these is about the largest token before a lock.
        ordered(TokenRule::RealTime, locks, |one| one.returned, |one| one.began)?;
        // Events of one instant are in the order of the records. A lease that expires at that
        // instant ended before all of them.
        let end = |one: &Fenced| (one.to, one.ended.unwrap_or(0));
        ordered(TokenRule::Leases, locks, end, |one| (one.from, one.returned))?;
    }
    Ok(fenced.len())
}

/// All locks with a fencing token, in the order in which they were returned.
fn fenced(history: &[Record]) -> Vec<Fenced> {
    let mut fenced: Vec<Fenced> = Vec::new();
    let mut open: HashMap<(Arc<str>, usize, Arc<str>), usize> = HashMap::new();
    let mut invoked = HashMap::new();
    for (at, record) in history.iter().enumerate() {
        let (resource, contender) = (record.resource.clone(), record.contender);
        let who = (resource.clone(), contender, record.token.clone());
        let latest = open.get(&who).copied();
        match (record.event, latest) {
            (Event::Invoked, _) => drop(invoked.insert((resource, contender), at)),
            (Event::Fenced { fencing_token, until }, _) => {
                let began = invoked.get(&(resource.clone(), contender)).copied().unwrap_or(at);
                open.insert(who, fenced.len());
                fenced.push(Fenced {
                    resource,
                    contender,
                    fencing_token,
                    from: record.at,
                    to: until,
                    began,
                    returned: at,
                    ended: None,
                });
            }
            (Event::Granted { until }, Some(i)) => fenced[i].to = until,
            (Event::Released | Event::Lost, Some(i)) => {
                open.remove(&who);
                if record.at < fenced[i].to {
                    (fenced[i].to, fenced[i].ended) = (record.at, Some(at));
                }
            }
            _ => {}
        }
    }
    fenced
}

fn unique(locks: &[&Fenced]) -> Result<(), Box<Disorder>> {
    let mut seen: HashMap<u64, &Fenced> = HashMap::new();
    for second in locks {
        if let Some(first) = seen.insert(second.fencing_token, second) {
            return Err(Disorder::of(TokenRule::Unique, first, second));
        }
    }
    Ok(())
}

/// Checks that each lock has a larger token than all locks that ended before it began.
fn ordered<T: Ord + Copy>(
    rule: TokenRule,
    locks: &[&Fenced],
    end: impl Fn(&Fenced) -> T,
    begin: impl Fn(&Fenced) -> T,
) -> Result<(), Box<Disorder>> {
    let mut ends: Vec<_> = locks.iter().map(|one| (end(one), *one)).collect();
    ends.sort_by_key(|(end, _)| *end);
    let mut begins: Vec<_> = locks.iter().map(|one| (begin(one), *one)).collect();
    begins.sort_by_key(|(begin, _)| *begin);
    let mut ends = ends.into_iter().peekable();
    let mut largest: Option<&Fenced> = None;
    for (begin, second) in begins {
        while let Some((_, ended)) = ends.next_if(|(end, _)| *end <= begin) {
            let is_larger = largest.is_none_or(|one| one.fencing_token < ended.fencing_token);
            largest = if is_larger { Some(ended) } else { largest };
        }
        if let Some(first) = largest.filter(|one| one.fencing_token >= second.fencing_token)
            && first.returned != second.returned
        {
            return Err(Disorder::of(rule, first, second));
        }
    }
    Ok(())
}

impl Disorder {
    fn of(rule: TokenRule, first: &Fenced, second: &Fenced) -> Box<Self> {
        Box::new(Self { rule, first: first.clone(), second: second.clone() })
    }
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { contender, fencing_token, from, to, .. } = self;
        write!(f, "contender {contender} from {from:?} to {to:?} (fencing token {fencing_token})")
    }
}

impl fmt::Display for Disorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, first, second } = self;
        let rule = match rule {
            TokenRule::Unique => "one fencing token twice",
            TokenRule::RealTime => "a later request has no larger fencing token",
            TokenRule::Leases => "a later lease has no larger fencing token",
        };
        write!(f, "{rule}, of {:?}: {first}, and {second}", first.resource)
    }
}

impl Error for Disorder {}

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

    fn asks(millis: u64, contender: usize) -> Record {
        record(millis, contender, Event::Invoked)
    }

    fn gets(millis: u64, contender: usize, fencing_token: u64) -> Record {
        record(millis, contender, Event::Fenced { fencing_token, until: at(millis + 100) })
    }

    fn rule(history: &[Record]) -> Option<TokenRule> {
        check_tokens(history).err().map(|disorder| disorder.rule)
    }

    #[test]
    fn tokens_that_grow_are_right() {
        let history = [asks(0, 1), gets(1, 1, 32), asks(2, 2), gets(101, 2, 64), gets(201, 3, 96)];
        assert_eq!(check_tokens(&history), Ok(3));
    }

    #[test]
    fn a_token_is_handed_out_once() {
        let history = [asks(0, 1), asks(0, 2), gets(1, 1, 32), gets(1, 2, 32)];
        assert_eq!(rule(&history), Some(TokenRule::Unique));
        let other = Record { resource: "other".into(), ..gets(1, 2, 32) };
        assert_eq!(check_tokens(&[gets(1, 1, 32), other]), Ok(2), "each resource by itself");
    }

    #[test]
    fn a_request_behind_a_lock_gets_a_larger_token() {
        let behind = [asks(0, 1), gets(1, 1, 64), asks(1, 2), gets(2, 2, 32)];
        assert_eq!(rule(&behind), Some(TokenRule::RealTime));
        let beside = [asks(0, 1), asks(1, 2), gets(1, 1, 64), gets(2, 2, 32)];
        assert_eq!(check_tokens(&beside), Ok(2));
    }

    #[test]
    fn a_lease_behind_another_has_a_larger_token() {
        let ended = |millis| record(millis, 1, Event::Released);
        let begins = [asks(0, 1), asks(0, 2), gets(1, 1, 64)];
        let behind = [&begins[..], &[ended(50), gets(50, 2, 32)]].concat();
        assert_eq!(rule(&behind), Some(TokenRule::Leases));
        let run_out = [&begins[..], &[gets(101, 2, 32)]].concat();
        assert_eq!(rule(&run_out), Some(TokenRule::Leases));
        let extended = record(90, 1, Event::Granted { until: at(190) });
        let beside = [&begins[..], &[extended, gets(101, 2, 32)]].concat();
        assert_eq!(check_tokens(&beside), Ok(2));
        let at_once = [asks(0, 1), asks(0, 2), gets(0, 2, 32), gets(0, 1, 64)];
        let at_once = [&at_once[..], &[record(0, 1, Event::Released)]].concat();
        assert_eq!(check_tokens(&at_once), Ok(2), "it was returned before the other has ended");
    }

    #[test]
    fn a_disorder_is_described_in_words() {
        let disorder = check_tokens(&[gets(0, 1, 32), gets(100, 2, 32)]).unwrap_err();
        assert_eq!(
            disorder.to_string(),
            "one fencing token twice, of \"r\": contender 1 from 0ns to 100ms (fencing token 32), \
             and contender 2 from 100ms to 200ms (fencing token 32)"
        );
    }
}
