//! Requests about admission: the connection keeps nothing of their answers.
//!
//! The caller sets the identity of a master, and with it the name of its ballot set
//! ([`Wire::name_set`]). If an answer changed it here, the machine that compares answers would not
//! notice a loss of data.

use redis::Value;

use super::super::admission::{self, InHand, Progress, needs_namespace};
use super::super::namespace::Set;
use super::{Pending, Settled, Wire};
use crate::admission::{AdmissionOp, AdmissionReply, Identity};
use crate::{Answer, Cause, Facts, Op, VoteSlot};

/// Facts already read, whose members are still being counted.
pub(super) struct Counting {
    pub(super) slot: VoteSlot,
    facts: Facts,
    /// The number of this read, in the order of all reads.
    read: u64,
}

impl Wire {
    pub(super) fn send_admission(&mut self, op: Op, slot: VoteSlot) {
        let (packed, in_hand) = InHand::prepare(op, slot, self.namespace.as_deref());
        self.out.extend_from_slice(&packed);
        self.in_flight.push_back(Pending::Admission(in_hand));
    }

    /// Returns why a request about admission cannot be sent. `None` if it can, and for all other
    /// requests.
    pub(super) fn lacks_namespace(&self, op: &Op) -> Option<Cause> {
        let is_lacking = self.namespace.is_none() && op.admission_op().is_some_and(needs_namespace);
        is_lacking.then(|| Cause::NotSent("this node has no prefix".into()))
    }

    /// Ballots go to the set of a master that was admitted as this. Clients without quarantine
    /// have another one, which no admission names.
    pub(in crate::redis) fn name_set(&mut self, run: Option<Identity>) {
        let namespace = self.namespace.as_ref();
        self.set = namespace.and_then(|namespace| Set::of(namespace, run));
    }

    pub(super) fn settle_admission(&mut self, in_hand: Box<InHand>, reply: Value) -> Settled {
        match in_hand.take(reply) {
            Progress::Waiting(in_hand) => {
                self.in_flight.push_front(Pending::Admission(in_hand));
                Settled::More
            }
            Progress::Done(slot, said) => {
                let read = self.read();
                self.tell(slot, said, read)
            }
            Progress::Count(slot, facts) => {
                let read = self.read();
                if !self.count_members(&facts) {
                    let members = Some(0);
                    return self.tell(slot, Ok(AdmissionReply::Facts { facts, members }), read);
                }
                let counting = Counting { slot, facts, read };
                self.in_flight.push_back(Pending::Count(Box::new(counting)));
                Settled::More
            }
        }
    }

    /// Completes facts. If later facts were reported during the count, they are read again, so that
    /// the machine never receives an older state of a master after a newer one.
    pub(super) fn settle_count(&mut self, counting: Counting, reply: &Value) -> Settled {
        let Counting { slot, facts, read } = counting;
        if read >= self.reported {
            let members = admission::members(reply);
            return self.tell(slot, Ok(AdmissionReply::Facts { facts, members }), read);
        }
        // The connection sends this once it has processed all received bytes.
        self.send_admission(Op::admission(AdmissionOp::ReadFacts), slot);
        Settled::More
    }

    fn read(&mut self) -> u64 {
        self.reads += 1;
        self.reads
    }

    fn tell(&mut self, slot: VoteSlot, said: Result<AdmissionReply, Cause>, read: u64) -> Settled {
        if let Ok(
            AdmissionReply::Facts { .. }
            | AdmissionReply::Scores { .. }
            | AdmissionReply::Script(_),
        ) = said
        {
            self.reported = read;
        }
        Settled::Vote(slot, Answer::of_admission(said.map(|said| self.complete(said))))
    }

    /// Adds the facts that only the handshake learns to facts read later.
    fn complete(&self, mut said: AdmissionReply) -> AdmissionReply {
        if let AdmissionReply::Facts { facts, .. } | AdmissionReply::Scores { facts, .. } =
            &mut said
        {
            (facts.tracks, facts.has_barrier) = (self.tracks, self.has_barrier);
            facts.no_ballots.clone_from(&self.no_ballots);
            facts.no_queue.clone_from(&self.no_queue);
        }
        said
    }

    /// Requests the count of members, if there is a set whose members matter. Returns `true` if it
    /// did.
    pub(super) fn count_members(&mut self, facts: &Facts) -> bool {
        let namespace = self.namespace.as_ref();
        let count = namespace.and_then(|namespace| admission::counted(namespace, facts));
        if let Some(count) = &count {
            self.out.extend_from_slice(&count.get_packed_command());
        }
        count.is_some()
    }
}
