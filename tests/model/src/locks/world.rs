//! The state of the model.

use super::broken::Broken;
use super::contender::Contender;
use super::master::{Master, RESOURCES};
use super::part::Part;
use super::wire::{Number, Token};
use crate::shared::Shared;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: u8,
    pub(crate) masters: Vec<Shared<Master>>,
    pub(crate) contenders: Vec<Shared<Contender>>,
    /// The tokens that were handed out, in that order.
    pub(crate) handed: Vec<Handed>,
    /// A state that must never occur.
    pub(crate) wrong: Option<Wrong>,
    pub(crate) left: Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handed {
    pub(crate) token: Token,
    pub(crate) ballot: Number,
    pub(crate) resource: usize,
    pub(crate) lock: u8,
}

/// The token of the first holder of a lease that is resumed.
pub(crate) const FORMER: Handed = Handed { token: 32, ballot: 1, resource: 0, lock: 0 };

/// The remaining actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) extensions: u8,
    pub(crate) breaks: u8,
    pub(crate) cancels: u8,
    pub(crate) slips: u8,
    pub(crate) second: u8,
    pub(crate) vanish: u8,
    pub(crate) losses: u8,
    pub(crate) resumes: u8,
    pub(crate) plants: u8,
    pub(crate) again: u8,
    pub(crate) hand_overs: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrong {
    /// All is acknowledged, and a key is still there.
    KeyLeft,
    /// A token was handed out twice.
    Twice,
    /// A token is not larger than a token handed out before its attempt began.
    OutOfTime,
    /// A token is not larger than one of an earlier lease.
    OutOfOrder,
    /// A passed-on lock has no larger token than the previous lock of the lease.
    OutOfLease,
}

impl World {
    pub(crate) fn new(part: &Part) -> Self {
        Self {
            now: 0,
            masters: (0..part.masters).map(|one| Master::new(part, one).into()).collect(),
            contenders: part.attempts.iter().map(|_| Contender::new(part).into()).collect(),
            handed: if part.resumes > 0 { vec![FORMER] } else { Vec::new() },
            wrong: None,
            left: Left {
                extensions: part.extensions,
                breaks: part.breaks,
                cancels: part.cancels,
                slips: part.slips,
                second: part.second,
                vanish: part.vanish,
                losses: part.losses,
                resumes: part.resumes,
                plants: part.plants,
                again: part.again,
                hand_overs: part.hand_overs,
            },
        }
    }

    /// The most that believe to hold one lock, each by its own clock.
    pub(crate) fn holders(&self, part: &Part) -> usize {
        let holders = |resource: usize| {
            let all = self.contenders.iter().enumerate();
            let own = all.filter(|(own, _)| part.resource(*own) == resource);
            own.filter(|(_, own)| own.is_holder(own.clock(part, self.now))).count()
        };
        (0..RESOURCES).map(holders).max().unwrap_or(0)
    }

    /// The largest token that was handed out for a resource.
    pub(crate) fn largest(&self, part: &Part, resource: usize) -> Token {
        let own = self.handed(part).filter(|handed| handed.resource == resource);
        own.map(|handed| handed.token).max().unwrap_or(0)
    }

    /// Returns the tokens handed out before. If a lease keeps its former token, that one is its
    /// own.
    fn handed(&self, part: &Part) -> impl Iterator<Item = &Handed> {
        let keeps = part.broken == Some(Broken::FormerToken);
        self.handed.iter().filter(move |handed| !keeps || handed.lock != FORMER.lock)
    }

    /// A token is handed out.
    pub(crate) fn hand_out(&mut self, part: &Part, handed: Handed, after: Token) {
        let Handed { token, resource, lock, .. } = handed;
        let mut own = self.handed.iter().filter(|before| before.lock == lock);
        let wrong = if self.handed(part).any(|before| before.token == token) {
            Some(Wrong::Twice)
        } else if own.any(|before| before.token > token) {
            Some(Wrong::OutOfLease)
        } else if token <= after {
            Some(Wrong::OutOfTime)
        } else if part.clocks_hold && token <= self.largest(part, resource) {
            Some(Wrong::OutOfOrder)
        } else {
            None
        };
        self.wrong = self.wrong.or(wrong);
        self.handed.push(handed);
    }

    /// Whether on each master the tokens that it has accepted have the order of their keys.
    pub(crate) fn has_key_order(&self) -> bool {
        let handed = self.handed.iter();
        let mut pairs = handed.flat_map(|one| self.handed.iter().map(move |other| (one, other)));
        pairs.all(|(one, other)| !self.is_turned(one, other))
    }

    /// Returns `true` if a master that accepted both held their keys in another order than their
    /// numbers. All locks of one lease have one key.
    fn is_turned(&self, one: &Handed, other: &Handed) -> bool {
        self.masters.iter().any(|master| {
            let place = |handed: &Handed| {
                master.past.iter().position(|past| *past == (handed.lock, handed.ballot))
            };
            match (place(one), place(other)) {
                (Some(first), Some(then)) if first != then => {
                    (first < then) != (one.token < other.token)
                }
                _ => false,
            }
        })
    }
}
