//! `Agenda` and `Audience`: the next connection, and the connections to notify, without a look at
//! all of them.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::Hash;

use redlock_core::Instant;

/// Connections with a message on its way, by the time at which their first one arrives. An entry
/// whose message is gone is dropped when its time comes.
#[derive(Debug, Default)]
pub(super) struct Agenda(BinaryHeap<Reverse<(Instant, usize)>>);

impl Agenda {
    pub(super) fn add(&mut self, due: Instant, link: usize) {
        self.0.push(Reverse((due, link)));
    }

    /// Returns the first entry that still is what `due_of` reports.
    pub(super) fn first(
        &mut self,
        due_of: impl Fn(usize) -> Option<Instant>,
    ) -> Option<(Instant, usize)> {
        loop {
            let Reverse((due, link)) = *self.0.peek()?;
            if due_of(link) == Some(due) {
                return Some((due, link));
            }
            self.0.pop();
        }
    }

    /// Removes all due entries, and returns their connections in the order of their
    /// numbers.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<usize> {
        let mut links = Vec::new();
        while let Some(Reverse((_, link))) = self.0.peek().copied().filter(|it| it.0.0 <= now) {
            self.0.pop();
            links.push(link);
        }
        links.sort_unstable();
        links.dedup();
        links
    }
}

/// The connections that want to hear of something, in the order of their numbers.
#[derive(Debug)]
pub(super) struct Audience<K>(HashMap<K, Vec<usize>>);

impl<K> Default for Audience<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> Audience<K> {
    pub(super) fn add(&mut self, subject: K, link: usize) {
        let links = self.0.entry(subject).or_default();
        if let Err(at) = links.binary_search(&link) {
            links.insert(at, link);
        }
    }

    pub(super) fn remove<Q: Eq + Hash + ?Sized>(&mut self, subject: &Q, link: usize)
    where
        K: Borrow<Q>,
    {
        let Some(links) = self.0.get_mut(subject) else { return };
        links.retain(|other| *other != link);
        if links.is_empty() {
            self.0.remove(subject);
        }
    }

    pub(super) fn take<Q: Eq + Hash + ?Sized>(&mut self, subject: &Q) -> Vec<usize>
    where
        K: Borrow<Q>,
    {
        self.0.remove(subject).unwrap_or_default()
    }

    pub(super) fn of<Q: Eq + Hash + ?Sized>(&self, subject: &Q) -> &[usize]
    where
        K: Borrow<Q>,
    {
        self.0.get(subject).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn entry_without_its_message_is_dropped() {
        let mut agenda = Agenda::default();
        agenda.add(at(3), 0);
        agenda.add(at(1), 1);
        agenda.add(at(2), 2);
        let due_of = |link| [Some(at(3)), None, Some(at(2))][link];
        assert_eq!(agenda.first(due_of), Some((at(2), 2)));
        assert_eq!(agenda.take_due(at(3)), [0, 2]);
        assert_eq!(agenda.first(due_of), None);
    }

    #[test]
    fn an_audience_is_in_the_order_of_its_numbers() {
        let mut audience = Audience::<Vec<u8>>::default();
        for link in [5, 2, 5, 9] {
            audience.add(b"key".to_vec(), link);
        }
        audience.remove(b"key".as_slice(), 9);
        assert_eq!(audience.of(b"key".as_slice()), [2, 5]);
        assert_eq!(audience.take(b"key".as_slice()), [2, 5]);
        assert!(audience.of(b"key".as_slice()).is_empty());
    }
}
