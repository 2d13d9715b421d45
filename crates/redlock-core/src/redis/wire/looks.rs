//! Orders, and the looks that are sent behind acquires: what they tell of the master is kept.

use redis::Value;

use super::super::ballots::Set;
use super::super::behind::{Behind, Known, Look};
use super::super::order::{self, InHand, Progress, Sending};
use super::{Pending, Settled, Taken, Wire};
use crate::Facts;
use crate::admission::{Order, OrderSlot, Said};

impl Wire {
    /// Takes an order.
    pub(in crate::redis) fn order(&mut self, order: Order, slot: OrderSlot) -> Taken {
        if let Some(cause) = self.obstacle() {
            return Taken::Refused(slot, cause);
        }
        match InHand::prepare(order, slot, self.namespace.as_deref()) {
            Sending::Refused(slot, cause) => Taken::Refused(slot, cause),
            Sending::Packed(packed, in_hand) => {
                self.out.extend_from_slice(&packed);
                self.in_flight.push_back(Pending::Order(in_hand));
                Taken::Sent(self.waker.take())
            }
        }
    }

    pub(super) fn settle_behind(&mut self, mut behind: Box<Behind>, reply: Value) -> Settled {
        if !behind.take(reply) {
            self.in_flight.push_front(Pending::Behind(behind));
            return Settled::More;
        }
        match behind.judge(self.known.as_ref()) {
            Some((slot, answer, true)) => Settled::Changed(slot, answer),
            Some((slot, answer, false)) => Settled::vote(slot, answer),
            None => Settled::Unasked(Value::Nil),
        }
    }

    pub(super) fn settle_order(&mut self, in_hand: Box<InHand>, reply: Value) -> Settled {
        match in_hand.take(reply) {
            Progress::Waiting(in_hand) => {
                self.in_flight.push_front(Pending::Order(in_hand));
                Settled::More
            }
            Progress::Done(slot, said) => {
                let said = said.map(|said| self.learn(said));
                Settled::Ordered(slot, said)
            }
            Progress::Count(slot, mut facts) => {
                self.complete(&mut facts);
                if !self.count_members(&facts) {
                    return Settled::Ordered(slot, Ok(Said::Looked { facts, members: Some(0) }));
                }
                self.in_flight.push_back(Pending::Count(Box::new((slot, facts))));
                Settled::More
            }
        }
    }

    /// What an answer says about the master is what looks are compared with from now on.
    fn learn(&mut self, mut said: Said) -> Said {
        match &mut said {
            Said::Looked { facts, .. } | Said::Scores { facts, .. } => self.complete(facts),
            Said::Script(reply) => {
                self.known.iter_mut().for_each(|known| known.set_run(reply.record.run));
                self.name_set();
            }
            Said::Time { .. } | Said::Members(_) => {}
        }
        said
    }

    /// What only the handshake knows is added to facts that were read later.
    fn complete(&mut self, facts: &mut Facts) {
        (facts.tracks, facts.is_barred) = (self.tracks, self.is_barred);
        facts.no_ballots.clone_from(&self.no_ballots);
        self.know(facts);
    }

    pub(super) fn know(&mut self, facts: &Facts) {
        self.known = Known::of(facts);
        let is_due = self.known.is_some() && !self.tracks;
        let looks = self.namespace.as_ref().filter(|namespace| is_due && namespace.quarantine);
        self.behind = looks.map(|namespace| Look::new(namespace));
        self.name_set();
    }

    /// The ballot set is named after what the master was admitted as.
    fn name_set(&mut self) {
        self.set = self.namespace.as_ref().and_then(|namespace| {
            let run = self.known.as_ref().and_then(Known::admitted);
            Set::of(namespace, run)
        });
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
