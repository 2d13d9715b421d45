//! Computes until when we hold the key. Pure: time is an argument. See rules T3 to T5 of
//! `docs/PROTOCOL.md`.

use std::time::Duration;

use redlock_core::Instant;

use crate::quorum::{MASTERS_MAX, quorum};

/// For each master, the instant on our clock until which it is known to hold our key.
///
/// This is the only rule about time. A confirmed grant or extension sets a master's instant to
/// "before that request was sent, plus the validity". An unknown outcome leaves it, and evidence
/// that the key is gone clears it. The lease is valid while the instants of a quorum are in the
/// future.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldUntil {
    masters: usize,
    /// [`Instant::ORIGIN`] means "not held", because no clock shows anything earlier.
    until: [Instant; MASTERS_MAX],
}

impl HoldUntil {
    /// Creates the state in which no master holds the key.
    #[inline]
    pub fn new(masters: usize) -> Self {
        Self { masters, until: [Instant::ORIGIN; MASTERS_MAX] }
    }

    /// Records that `master` has confirmed a grant or an extension sent no earlier than `sent_at`.
    /// A late reply, after the reply to a later request, never shortens anything.
    #[inline]
    pub fn confirm(&mut self, master: usize, sent_at: Instant, validity: Duration) {
        let until = &mut self.until[master];
        *until = (*until).max(sent_at.saturating_add(validity));
    }

    /// Sets the instant until which `master` holds our key.
    #[inline]
    pub fn set(&mut self, master: usize, until: Instant) {
        self.until[master] = until;
    }

    /// Records evidence that `master` no longer holds our key.
    #[inline]
    pub fn clear(&mut self, master: usize) {
        self.until[master] = Instant::ORIGIN;
    }

    /// Returns the q-th largest instant, until which at least a quorum holds our key.
    #[inline]
    pub fn valid_until(&self) -> Instant {
        let mut sorted = self.until;
        sorted[..self.masters].sort_unstable_by(|a, b| b.cmp(a));
        sorted[quorum(self.masters) - 1]
    }

    /// Returns until when `master` is known to hold our key.
    #[inline]
    pub fn of(&self, master: usize) -> Instant {
        self.until[master]
    }

    /// Returns how many masters are known to hold our key.
    pub fn copies(&self, now: Instant) -> usize {
        self.until[..self.masters].iter().filter(|until| **until > now).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALIDITY: Duration = Duration::from_nanos(1_000);

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn one_acquire_is_valid_for_the_ttl_less_elapsed_less_drift() {
        let mut holds = HoldUntil::new(5);
        for master in [4, 0, 2] {
            assert_eq!(holds.valid_until(), Instant::ORIGIN);
            holds.confirm(master, at(50), VALIDITY);
        }
        assert_eq!(holds.valid_until(), at(1_050));
        assert_eq!((holds.copies(at(1_049)), holds.copies(at(1_050))), (3, 0));
    }

    #[test]
    fn two_of_three_extended_masters_move_the_lease() {
        let mut holds = HoldUntil::new(3);
        (0..3).for_each(|master| holds.confirm(master, at(0), VALIDITY));
        holds.confirm(0, at(300), VALIDITY);
        assert_eq!(holds.valid_until(), at(1_000), "one extension is not a quorum");
        holds.confirm(1, at(400), VALIDITY);
        assert_eq!(holds.valid_until(), at(1_300));
        assert_eq!(holds.copies(at(1_200)), 2);
    }

    #[test]
    fn evidence_of_loss_excludes_a_master_immediately() {
        let mut holds = HoldUntil::new(3);
        (0..2).for_each(|master| holds.confirm(master, at(0), VALIDITY));
        holds.clear(1);
        assert_eq!(holds.valid_until(), Instant::ORIGIN);
    }

    #[derive(Clone, Debug)]
    enum Event {
        Confirm(usize, u64),
        Clear(usize),
    }

    fn events() -> impl Strategy<Value = (usize, Vec<Event>)> {
        (1..=MASTERS_MAX).prop_flat_map(|masters| {
            let event = prop_oneof![
                4 => (0..masters, 0..10_000_u64).prop_map(|(m, at)| Event::Confirm(m, at)),
                1 => (0..masters).prop_map(Event::Clear),
            ];
            (Just(masters), prop::collection::vec(event, 0..60))
        })
    }

    fn apply(holds: &mut HoldUntil, event: &Event) {
        match event {
            Event::Confirm(master, sent_at) => holds.confirm(*master, at(*sent_at), VALIDITY),
            Event::Clear(master) => holds.clear(*master),
        }
    }

    proptest! {
        /// The rule means: at every instant, a lease is valid exactly if more than half of the
        /// masters are known to hold the key.
        #[test]
        fn valid_means_that_more_than_half_hold_the_key((masters, events) in events()) {
            let mut holds = HoldUntil::new(masters);
            for event in &events {
                apply(&mut holds, event);
                for now in (0..11_100).step_by(50).map(at) {
                    let valid = now < holds.valid_until();
                    prop_assert_eq!(valid, holds.copies(now) * 2 > masters);
                }
            }
        }

        #[test]
        fn a_confirmation_never_shortens_the_lease((masters, events) in events()) {
            let mut holds = HoldUntil::new(masters);
            for event in &events {
                let before = holds.valid_until();
                apply(&mut holds, event);
                if let Event::Confirm(..) = event {
                    prop_assert!(holds.valid_until() >= before);
                } else {
                    prop_assert!(holds.valid_until() <= before);
                }
            }
        }

        #[test]
        fn the_order_of_confirmations_does_not_matter(
            (masters, mut events) in events(),
            turn in any::<prop::sample::Index>(),
        ) {
            events.retain(|event| matches!(event, Event::Confirm(..)));
            let end = |events: &[Event]| {
                let mut holds = HoldUntil::new(masters);
                events.iter().for_each(|event| apply(&mut holds, event));
                holds.valid_until()
            };
            let before = end(&events);
            if !events.is_empty() {
                let by = turn.index(events.len());
                events.rotate_left(by);
            }
            prop_assert_eq!(end(&events), before);
        }

        /// No confirmation makes a lease last longer than the latest request plus the validity.
        #[test]
        fn validity_starts_before_the_request((masters, events) in events()) {
            let mut holds = HoldUntil::new(masters);
            let mut latest = 0;
            for event in &events {
                if let Event::Confirm(_, sent_at) = event {
                    latest = latest.max(*sent_at);
                }
                apply(&mut holds, event);
                prop_assert!(holds.valid_until() <= at(latest).saturating_add(VALIDITY));
            }
        }
    }
}
