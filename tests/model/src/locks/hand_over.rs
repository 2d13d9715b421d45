//! A lease passes from one caller of a contender to the next, without a request to any master.
//!
//! # What is promised
//!
//! Whatever clocks do: no token is handed out twice; a passed-on lock has a larger token than the
//! previous lock of the lease, and a smaller token than every lease whose attempt begins after it;
//! masters that two leases share held their keys in the order of all their tokens.
//!
//! Not promised if clocks break: that the token is larger than all tokens handed out before the
//! pass. A holder that believes in its lease may pass it on after a later lease of another
//! contender, because no master is queried, and only a master could know. The store rejects that
//! caller. Under Redlock's assumptions the order is that of time, because at most one lease is
//! valid. `OrderWithoutClocks` demands it even if clocks break, and finds a counterexample.

use redlock_protocol::token::lease::hand_over::HandOver;
use redlock_protocol::token::lifecycle::{Event, Step};

use super::broken::Broken;
use super::contender::{at_start, options};
use super::part::Part;
use super::wire::{Number, Token};
use super::world::{Handed, World, Wrong};

impl World {
    /// The holder is done, and another caller of its contender wants the lock.
    pub(crate) fn hand_on(&mut self, part: &Part, own: usize) {
        let clock = match part.broken {
            Some(Broken::HandedOnOver) => at_start(part),
            _ => self.contenders[own].clock(part, self.now),
        };
        let Some(lock) = self.contenders[own].open_mut() else { return };
        let (id, event) = (lock.id, Event::HandOn(options()));
        if let Step::HandedOn(hand_over) = lock.machine.on(event, clock) {
            self.left.hand_overs -= 1;
            self.handed_on(part, own, id, hand_over);
        }
    }

    fn handed_on(&mut self, part: &Part, own: usize, id: u8, hand_over: HandOver) {
        let (Some(token), Some(proof)) = (hand_over.token(), hand_over.proof) else { return };
        let (ballot, resource) = (proof.ballot.number() as Number, part.resource(own));
        let token = match part.broken {
            Some(Broken::HandedOnOutside) => proof.ballot.token().get() + OUTSIDE,
            _ => token.get(),
        };
        let is_demanded = part.broken == Some(Broken::OrderWithoutClocks);
        if is_demanded && token <= self.largest(part, resource) {
            self.wrong = Some(Wrong::OutOfOrder);
        }
        self.hand_out(part, Handed { token, ballot, resource, lock: id }, 0);
    }
}

/// The first number after a ballot that is another ballot's token.
const OUTSIDE: Token = 32;
