//! Orders and looks: what they tell of the master is passed on, and changes nothing here.
//!
//! What a master is admitted as, and so the name of its ballot set, is what the one who gives the
//! orders says ([`Wire::name_set`]). A look that changed it would hide a loss of data from those
//! who compare.

use redis::Value;

use super::super::ballots::Set;
use super::super::order::{self, InHand, Progress, Sending};
use super::{Pending, Settled, Taken, Wire};
use crate::admission::{Identity, Order, OrderSlot, Said};
use crate::{Cause, Facts};

/// A look that is done but for the number of members.
pub(super) struct Counting {
    pub(super) slot: OrderSlot,
    facts: Facts,
    /// When the facts were read, in the order of all that was read.
    read: u64,
}

impl Wire {
    /// Takes an order.
    pub(in crate::redis) fn order(&mut self, order: Order, slot: OrderSlot) -> Taken {
        if let Some(cause) = self.obstacle() {
            return Taken::Refused(slot, cause);
        }
        self.send_order(order, slot)
    }

    fn send_order(&mut self, order: Order, slot: OrderSlot) -> Taken {
        match InHand::prepare(order, slot, self.namespace.as_deref()) {
            Sending::Refused(slot, cause) => Taken::Refused(slot, cause),
            Sending::Packed(packed, in_hand) => {
                self.out.extend_from_slice(&packed);
                self.in_flight.push_back(Pending::Order(in_hand));
                Taken::Sent(self.waker.take())
            }
        }
    }

    /// Ballots go to the set of a master that was admitted as this. Clients without quarantine
    /// have another one, which no admission names.
    pub(in crate::redis) fn name_set(&mut self, run: Option<Identity>) {
        let namespace = self.namespace.as_ref();
        self.set = namespace.and_then(|namespace| Set::of(namespace, run));
    }

    pub(super) fn settle_order(&mut self, in_hand: Box<InHand>, reply: Value) -> Settled {
        match in_hand.take(reply) {
            Progress::Waiting(in_hand) => {
                self.in_flight.push_front(Pending::Order(in_hand));
                Settled::More
            }
            Progress::Done(slot, said) => {
                let read = self.read();
                self.tell(slot, said, read)
            }
            Progress::Count(slot, facts) => {
                let read = self.read();
                if !self.count_members(&facts) {
                    return self.tell(slot, Ok(Said::Looked { facts, members: Some(0) }), read);
                }
                let counting = Counting { slot, facts, read };
                self.in_flight.push_back(Pending::Count(Box::new(counting)));
                Settled::More
            }
        }
    }

    /// The last part of a look. Where something was told meanwhile that was read later, the look
    /// is repeated: the machine gets no older state of a master behind a newer one.
    pub(super) fn settle_count(&mut self, counting: Counting, reply: &Value) -> Settled {
        let Counting { slot, facts, read } = counting;
        if read >= self.told {
            let members = order::members(reply);
            return self.tell(slot, Ok(Said::Looked { facts, members }), read);
        }
        match self.send_order(Order::Look, slot) {
            Taken::Refused(slot, cause) => Settled::Ordered(slot, Err(cause)),
            // The connection sends what is there once it has read all there is.
            Taken::Sent(waker) => {
                self.waker = waker;
                Settled::More
            }
        }
    }

    fn read(&mut self) -> u64 {
        self.reads += 1;
        self.reads
    }

    fn tell(&mut self, slot: OrderSlot, said: Result<Said, Cause>, read: u64) -> Settled {
        if let Ok(Said::Looked { .. } | Said::Scores { .. } | Said::Script(_)) = said {
            self.told = read;
        }
        Settled::Ordered(slot, said.map(|said| self.complete(said)))
    }

    /// What only the handshake knows is added to facts that were read later.
    fn complete(&self, mut said: Said) -> Said {
        if let Said::Looked { facts, .. } | Said::Scores { facts, .. } = &mut said {
            (facts.tracks, facts.is_barred) = (self.tracks, self.is_barred);
            facts.no_ballots.clone_from(&self.no_ballots);
        }
        said
    }

    /// Whether there is a set whose members are of interest: then its count is asked for.
    pub(super) fn count_members(&mut self, facts: &Facts) -> bool {
        let namespace = self.namespace.as_ref();
        let count = namespace.and_then(|namespace| order::counted(namespace, facts));
        if let Some(count) = &count {
            self.out.extend_from_slice(&count.get_packed_command());
        }
        count.is_some()
    }
}
