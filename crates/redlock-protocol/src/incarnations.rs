//! `Incarnations`: whether earlier confirmations of a master are still valid. See rules V4 and A12
//! of `docs/PROTOCOL.md`.

use super::admission::{Admission, Incarnation};

/// For each master, the incarnation whose confirmations are valid. All confirmations since the last
/// event that ended an incarnation came from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Incarnations(Vec<Option<Incarnation>>);

/// The fate of the copies on a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// No evidence shows that they are lost.
    Kept,
    /// Its present incarnation has begun, and none of its copies is older.
    Begun,
    /// They may be gone and are no longer valid. If the master votes, another incarnation has
    /// begun.
    Lost,
}

impl Incarnations {
    /// Creates the state in which every master is in its first incarnation.
    pub fn new(masters: usize) -> Self {
        Self(vec![None; masters])
    }

    /// Compares a master with its previous state. A master that is unreachable or being checked has
    /// shown nothing new.
    pub fn review(&mut self, master: usize, admission: &Admission) -> Continuity {
        let counted = &mut self.0[master];
        let incarnation = admission.incarnation(master);
        if incarnation.is_none() && admission.is_open(master) {
            return Continuity::Kept;
        }
        match (std::mem::replace(counted, incarnation), incarnation) {
            (before, now) if before == now => Continuity::Kept,
            (None, Some(_)) => Continuity::Begun,
            _ => Continuity::Lost,
        }
    }

    /// Ends the incarnation of a master that was not proven in time. Returns `true` if there was
    /// one.
    pub fn give_up(&mut self, master: usize) -> bool {
        self.0[master].take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::admission::{Identity, MEMBERS, Nonce, Record, RunId};

    use super::super::admission::{Event, MasterKind, MasterView};
    use super::*;

    fn facts(process: u8, nonce: u64) -> MasterView {
        let identity = Identity::of(RunId::new([process; 20]));
        let run = Some(identity);
        let record = Record {
            run,
            nonce: Some(Nonce(nonce)),
            max_ttl: Some(1_000),
            floor: Some(31),
            quarantine: None,
            set: None,
        };
        MasterView { role: MasterKind::Master, identity, time: 5, record, members: Some(MEMBERS) }
    }

    struct World {
        admission: Admission,
        incarnations: Incarnations,
    }

    impl World {
        fn on(&mut self, event: Event) -> Continuity {
            self.admission.on(0, event, 0);
            self.incarnations.review(0, &self.admission)
        }

        /// Records a probe that was sent after the push.
        fn probed(&mut self, facts: MasterView) -> Continuity {
            self.admission.step(0, 0, Nonce(0));
            self.on(Event::Probed(facts))
        }
    }

    fn world() -> World {
        let (admission, incarnations) =
            (Admission::new(1, 1_000, 1_000, 1_000), Incarnations::new(1));
        let mut world = World { admission, incarnations };
        assert_eq!(world.on(Event::Up(facts(1, 1))), Continuity::Begun);
        world
    }

    #[test]
    fn broken_connection_keeps_the_copies() {
        let mut world = world();
        assert_eq!(world.on(Event::Down), Continuity::Kept);
        assert_eq!(world.on(Event::Up(facts(1, 1))), Continuity::Kept);
    }

    #[test]
    fn new_process_or_nonce_loses_the_copies() {
        for other in [facts(2, 1), facts(1, 2)] {
            let mut world = world();
            world.on(Event::Down);
            assert_eq!(world.on(Event::Up(other)), Continuity::Lost);
        }
    }

    #[test]
    fn master_no_longer_admitted_has_lost_its_copies() {
        let mut world = world();
        world.on(Event::Down);
        let emptied = MasterView { record: Record::default(), ..facts(1, 1) };
        assert_eq!(world.on(Event::Up(emptied)), Continuity::Lost);
        assert_eq!(world.on(Event::Probed(facts(1, 2))), Continuity::Begun);
    }

    #[test]
    fn copies_survive_a_push_if_the_incarnation_is_unchanged() {
        let mut world = world();
        assert_eq!(world.on(Event::Pushed), Continuity::Kept, "not known yet");
        assert_eq!(world.probed(facts(1, 1)), Continuity::Kept);
        world.on(Event::Pushed);
        assert_eq!(world.probed(facts(1, 2)), Continuity::Lost, "flushed, and admitted by init");
    }

    #[test]
    fn a_disowned_incarnation_starts_over() {
        let mut world = world();
        world.on(Event::Pushed);
        assert!(world.incarnations.give_up(0));
        assert!(!world.incarnations.give_up(0));
        assert_eq!(world.probed(facts(1, 1)), Continuity::Begun);
    }
}
