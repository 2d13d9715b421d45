//! `Queue`: callers in order of arrival. Any of them can leave at any time.

use std::collections::BTreeMap;

/// Callers in order. Joining and leaving is cheap, also from the middle. Otherwise, callers of a
/// long queue that give up together would keep the driver busy with searches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Queue<Id> {
    order: BTreeMap<u64, Id>,
    places: BTreeMap<Id, u64>,
    next: u64,
}

impl<Id: Copy + Ord> Queue<Id> {
    pub(super) fn new() -> Self {
        Self { order: BTreeMap::new(), places: BTreeMap::new(), next: 0 }
    }

    /// Appends a caller. A caller that is already in the queue keeps its place.
    pub(super) fn join(&mut self, caller: Id) {
        if !self.places.contains_key(&caller) {
            self.order.insert(self.next, caller);
            self.places.insert(caller, self.next);
            self.next += 1;
        }
    }

    pub(super) fn leave(&mut self, caller: Id) {
        if let Some(place) = self.places.remove(&caller) {
            self.order.remove(&place);
        }
    }

    pub(super) fn first(&self) -> Option<Id> {
        self.order.first_key_value().map(|(_, caller)| *caller)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns all callers, in order.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Id> {
        self.order.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rand::seq::SliceRandom;

    use super::*;

    thread_local! {
        static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// A caller that counts how often callers are compared.
    #[derive(Clone, Copy, Debug, Eq)]
    struct Counting(u32);

    impl PartialEq for Counting {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other) == Ordering::Equal
        }
    }

    impl PartialOrd for Counting {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Counting {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.with(|compared| compared.set(compared.get() + 1));
            self.0.cmp(&other.0)
        }
    }

    #[test]
    fn callers_keep_their_order_when_others_leave() {
        let mut queue = Queue::new();
        [5, 3, 9, 1, 7].into_iter().for_each(|caller| queue.join(caller));
        [9, 5, 8].into_iter().for_each(|caller| queue.leave(caller));
        [2, 3, 5].into_iter().for_each(|caller| queue.join(caller));
        assert_eq!(queue.iter().collect::<Vec<_>>(), [3, 1, 7, 2, 5]);
        assert_eq!(queue.first(), Some(3));
    }

    #[test]
    fn leaving_a_long_queue_takes_few_steps() {
        const CALLERS: u32 = 100_000;
        let mut callers: Vec<Counting> = (0..CALLERS).map(Counting).collect();
        let mut queue = Queue::new();
        callers.iter().for_each(|caller| queue.join(*caller));
        callers.shuffle(&mut StdRng::seed_from_u64(0));
        COMPARED.with(|compared| compared.set(0));
        for caller in &callers {
            queue.leave(*caller);
            let steps = COMPARED.with(Cell::get);
            assert!(steps < u64::from(CALLERS) * 100, "{steps} comparisons");
        }
        assert!(queue.is_empty());
    }
}
