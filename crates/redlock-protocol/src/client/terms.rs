//! `Terms`: the settings of a client.

use redlock_core::admission::Names;
use redlock_core::{Instant, QueueTicket};

use super::draws::{Draw, Draws};
use super::{key, masters, questions};
use crate::terms::Limits;

/// The settings of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The masters, in the order of the list.
    pub names: Names,
    /// The durations.
    pub limits: Limits,
    /// The prefix of all keys.
    pub prefix: Vec<u8>,
    /// Whether a master that may have lost its data must end a quarantine.
    pub has_quarantine: bool,
    /// Whether locks have fencing tokens.
    pub fencing: bool,
    /// Whether processes that wait for a key share one queue.
    pub queue: bool,
    /// Whether a released lock passes to the next caller of this process.
    pub hand_over: bool,
    /// Draws the random pauses. Each client has another one.
    pub seed: u64,
}

impl Terms {
    /// Returns the random choices of the client.
    pub(super) fn draws(&self) -> Draws {
        Draws::new(self.seed)
    }

    /// Returns the settings that concern masters.
    pub(super) fn masters(&self) -> masters::Terms {
        masters::Terms {
            names: self.names.clone(),
            fencing: self.fencing,
            has_quarantine: self.has_quarantine,
            wants_queue: self.queue,
            max_ttl: self.limits.max_ttl(),
            is_max_ttl_given: self.limits.max_ttl.is_some(),
            act_within: self.limits.act_within(),
            order_timeout: self.limits.order_timeout(),
            node_timeout: self.limits.node_timeout(),
            connect_timeout: self.limits.connect_timeout,
        }
    }

    /// Returns the settings that concern keys.
    pub(super) fn keys(&self) -> key::Terms {
        let draws = self.draws();
        key::Terms {
            prefix: self.prefix.clone(),
            ticket: QueueTicket::new(draws.number(Draw::QueueTicket, Instant::ORIGIN)),
            has_queue: self.queue,
            seed: draws.number(Draw::Index, Instant::ORIGIN),
        }
    }

    /// Returns the settings that concern questions.
    pub(super) fn questions(&self) -> questions::Terms {
        questions::Terms {
            names: self.names.clone(),
            own_max_ttl: self.limits.max_ttl,
            max_ttl: self.limits.max_ttl(),
            act_within: self.limits.act_within(),
            connect_timeout: self.limits.connect_timeout,
        }
    }
}
