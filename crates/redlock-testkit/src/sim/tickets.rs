//! `Tickets`: the data of one queue on a simulated master.

use redlock_core::{QueueTicket, SharedQueue};

/// The tickets of one queue: a sorted set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tickets {
    /// The waiting tickets, the oldest first, each with the time of its entry by the master's clock
    /// in microseconds.
    pub(super) waiting: Vec<(i64, QueueTicket)>,
    /// When the set expires, by the master's clock in microseconds.
    ends_at: i64,
}

impl Tickets {
    /// Returns how many there are at this time.
    pub fn count(&self, time_us: i64) -> u32 {
        if self.is_over(time_us) { 0 } else { self.len() }
    }

    /// Returns `true` if there is nothing to keep at this time.
    pub(super) fn is_over(&self, time_us: i64) -> bool {
        self.waiting.is_empty() || time_us > self.ends_at
    }

    pub(super) fn stand(&mut self, time_us: i64, ticket: QueueTicket, waited_us: u64) {
        if self.rank(ticket).is_none() && self.len() >= SharedQueue::LEN_MAX {
            return;
        }
        self.remove(ticket);
        let entry = (time_us.saturating_sub_unsigned(waited_us), ticket);
        let (Ok(at) | Err(at)) = self.waiting.binary_search(&entry);
        self.waiting.insert(at, entry);
        self.ends_at = time_us.saturating_add_unsigned(SharedQueue::EXPIRY_MS * 1_000);
    }

    pub(super) fn remove(&mut self, ticket: QueueTicket) {
        self.waiting.retain(|(_, found)| *found != ticket);
    }

    /// Returns how many tickets are before this one. `None` if it has no place.
    pub fn rank(&self, ticket: QueueTicket) -> Option<u32> {
        let at = self.waiting.iter().position(|(_, found)| *found == ticket)?;
        u32::try_from(at).ok()
    }

    pub(super) fn len(&self) -> u32 {
        // There are `LEN_MAX` at most.
        u32::try_from(self.waiting.len()).unwrap_or(u32::MAX)
    }
}
