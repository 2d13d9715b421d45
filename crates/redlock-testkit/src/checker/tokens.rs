//! Fencing tokens: unique, and in the order of locks.

use std::collections::{HashMap, VecDeque};
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
    /// The number of the record in which it was returned.
    returned: usize,
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

/// Judges fencing tokens while a history is written, which may be of any length: it keeps the
/// requests and leases that last, and the tokens that were returned while one of these requests
/// had begun.
#[derive(Debug, Default)]
pub struct TokenOrder {
    resources: HashMap<Arc<str>, Order>,
    records: usize,
    judged: usize,
}

/// The tokens of one resource.
#[derive(Debug, Default)]
struct Order {
    /// The last request of each contender.
    requests: HashMap<usize, Request>,
    /// The held locks.
    leases: Vec<(Arc<str>, Fenced)>,
    /// The largest returned token, and the largest one of an ended lease.
    returned: Option<Fenced>,
    ended: Option<Fenced>,
    /// The tokens returned since the start of a request without an answer, in order.
    recent: VecDeque<Fenced>,
}

#[derive(Debug)]
struct Request {
    /// The number of the record in which it began.
    began: usize,
    has_answer: bool,
    /// The largest token that was returned before.
    before: Option<Fenced>,
}

/// Judges the fencing tokens of each resource. Returns how many there were: a history without any
/// proves nothing.
///
/// # Errors
/// Two locks that break a rule.
pub fn check_tokens(history: &[Record]) -> Result<usize, Box<Disorder>> {
    let mut order = TokenOrder::default();
    history.iter().try_for_each(|record| order.record(record))?;
    Ok(order.judged())
}

impl TokenOrder {
    /// Takes the next record. They come in the order of their instants.
    ///
    /// # Errors
    /// Two locks that break a rule.
    pub fn record(&mut self, record: &Record) -> Result<(), Box<Disorder>> {
        let number = self.records;
        self.records += 1;
        let order = match self.resources.get_mut(&record.resource) {
            Some(order) => order,
            None => self.resources.entry(record.resource.clone()).or_default(),
        };
        match record.event {
            Event::Invoked => order.begin(record.contender, number),
            Event::Refused | Event::Unknown => order.answered(record.contender),
            Event::Fenced { fencing_token, until } => {
                self.judged += 1;
                order.fenced(record, number, fencing_token, until)?;
            }
            Event::Granted { until } => {
                if let Some((_, lease)) = order.lease(record).map(|at| &mut order.leases[at]) {
                    lease.to = until;
                }
            }
            Event::Released | Event::Lost => order.end(record),
            Event::Completed { .. } => {}
        }
        Ok(())
    }

    /// Returns how many tokens there were.
    pub fn judged(&self) -> usize {
        self.judged
    }
}

impl Order {
    fn begin(&mut self, contender: usize, began: usize) {
        let before = self.returned.clone();
        self.requests.insert(contender, Request { began, has_answer: false, before });
    }

    fn answered(&mut self, contender: usize) {
        if let Some(request) = self.requests.get_mut(&contender) {
            request.has_answer = true;
        }
        // A request that begins later is compared with the largest one of these.
        let waits = self.requests.values().filter(|request| !request.has_answer);
        let first = waits.map(|request| request.began).min().unwrap_or(usize::MAX);
        let old = self.recent.iter().take_while(|one| one.returned < first).count();
        self.recent.drain(..old);
    }

    fn lease(&self, record: &Record) -> Option<usize> {
        let is_it = |(token, one): &(Arc<str>, Fenced)| {
            one.contender == record.contender && *token == record.token
        };
        self.leases.iter().position(is_it)
    }

    fn end(&mut self, record: &Record) {
        if let Some(at) = self.lease(record) {
            let (_, mut lease) = self.leases.swap_remove(at);
            lease.to = lease.to.min(record.at);
            larger(&mut self.ended, lease);
        }
    }

    fn fenced(
        &mut self,
        record: &Record,
        returned: usize,
        fencing_token: u64,
        to: Instant,
    ) -> Result<(), Box<Disorder>> {
        let (resource, contender) = (record.resource.clone(), record.contender);
        let one = Fenced { resource, contender, fencing_token, from: record.at, to, returned };
        self.expire(record.at);
        self.judge(&one)?;
        larger(&mut self.returned, one.clone());
        self.recent.push_back(one.clone());
        self.leases.push((record.token.clone(), one));
        self.answered(contender);
        Ok(())
    }

    /// A lease that expires at an instant ended before all events of that instant.
    fn expire(&mut self, now: Instant) {
        for (_, lease) in self.leases.extract_if(.., |(_, lease)| lease.to <= now) {
            larger(&mut self.ended, lease);
        }
    }

    fn judge(&self, second: &Fenced) -> Result<(), Box<Disorder>> {
        let is_same = |one: &&Fenced| one.fencing_token == second.fencing_token;
        if let Some(first) = self.recent.iter().find(is_same) {
            return Err(Disorder::of(TokenRule::Unique, first, second));
        }
        let before = match self.requests.get(&second.contender) {
            Some(request) => &request.before,
            None => &self.returned,
        };
        let both = [(TokenRule::RealTime, before), (TokenRule::Leases, &self.ended)];
        for (rule, first) in both {
            if let Some(first) =
                first.as_ref().filter(|first| first.fencing_token >= second.fencing_token)
            {
                return Err(Disorder::of(rule, first, second));
            }
        }
        Ok(())
    }
}

/// Keeps the one with the larger token.
fn larger(kept: &mut Option<Fenced>, one: Fenced) {
    if kept.as_ref().is_none_or(|kept| kept.fencing_token < one.fencing_token) {
        *kept = Some(one);
    }
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
    fn growing_tokens_are_valid() {
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
    fn request_after_a_lock_gets_a_larger_token() {
        let behind = [asks(0, 1), gets(1, 1, 64), asks(1, 2), gets(2, 2, 32)];
        assert_eq!(rule(&behind), Some(TokenRule::RealTime));
        let beside = [asks(0, 1), asks(1, 2), gets(1, 1, 64), gets(2, 2, 32)];
        assert_eq!(check_tokens(&beside), Ok(2));
    }

    #[test]
    fn lease_after_another_has_a_larger_token() {
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
    fn long_history_is_checked_in_little_memory() {
        let mut order = TokenOrder::default();
        for lock in 0..1_000 {
            order.record(&asks(lock * 10, 1)).unwrap();
            order.record(&gets(lock * 10, 1, lock + 1)).unwrap();
            order.record(&record(lock * 10 + 9, 1, Event::Released)).unwrap();
        }
        let kept = &order.resources["r"];
        assert_eq!((kept.recent.len(), kept.leases.len(), order.judged()), (0, 0, 1_000));
    }

    #[test]
    fn token_order_violation_is_described() {
        let both = [asks(0, 1), asks(0, 2), gets(0, 1, 32), gets(100, 2, 32)];
        let disorder = check_tokens(&both).unwrap_err();
        assert_eq!(
            disorder.to_string(),
            "one fencing token twice, of \"r\": contender 1 from 0ns to 100ms (fencing token 32), \
             and contender 2 from 100ms to 200ms (fencing token 32)"
        );
    }
}
