//! `Lives`: whether what a master confirmed before still counts.

use super::admission::{Admission, Life};

/// For each master, the life under which its confirmations count: since the last event that ended
/// one, all of them came from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lives(Vec<Option<Life>>);

/// What became of the copies on a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Custody {
    /// Nothing is known against them.
    Kept,
    /// The life that it has now began: none of its copies is older.
    Begun,
    /// They may be gone: they do not count any more. Where it votes, another life began.
    Lost,
}

impl Lives {
    /// Every master is in its first life.
    pub fn new(masters: usize) -> Self {
        Self(vec![None; masters])
    }

    /// Compares a master with what it was. One that cannot be reached, or is being looked at, has
    /// shown nothing new.
    pub fn review(&mut self, master: usize, admission: &Admission) -> Custody {
        let counted = &mut self.0[master];
        let life = admission.life(master);
        if life.is_none() && admission.is_open(master) {
            return Custody::Kept;
        }
        match (std::mem::replace(counted, life), life) {
            (before, now) if before == now => Custody::Kept,
            (None, Some(_)) => Custody::Begun,
            _ => Custody::Lost,
        }
    }

    /// It was not proven in time that the life of a master is what it was. Says whether it had one.
    pub fn give_up(&mut self, master: usize) -> bool {
        self.0[master].take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use redlock_core::admission::{Identity, MEMBERS, Nonce, Record, RunId};

    use super::super::admission::{Event, Facts, Role};
    use super::*;

    fn facts(process: u8, nonce: u64) -> Facts {
        let identity = Identity::of(RunId::new([process; 20]));
        let run = Some(identity);
        let record = Record {
            run,
            nonce: Some(Nonce(nonce)),
            max_ttl: Some(1_000),
            floor: Some(31),
            quarantine: None,
        };
        Facts { role: Role::Master, identity, time: 5, record, members: Some(MEMBERS) }
    }

    struct World {
        admission: Admission,
        lives: Lives,
    }

    impl World {
        fn on(&mut self, event: Event) -> Custody {
            self.admission.on(0, event, 0);
            self.lives.review(0, &self.admission)
        }

        /// A look that was sent after the push.
        fn looked(&mut self, facts: Facts) -> Custody {
            self.admission.step(0, 0, Nonce(0));
            self.on(Event::Looked(facts))
        }
    }

    fn world() -> World {
        let (admission, lives) = (Admission::new(1, 1_000, 1_000, 1_000), Lives::new(1));
        let mut world = World { admission, lives };
        assert_eq!(world.on(Event::Up(facts(1, 1))), Custody::Begun);
        world
    }

    #[test]
    fn a_connection_that_breaks_says_nothing_of_the_data() {
        let mut world = world();
        assert_eq!(world.on(Event::Down), Custody::Kept);
        assert_eq!(world.on(Event::Up(facts(1, 1))), Custody::Kept);
    }

    #[test]
    fn another_process_or_another_nonce_has_lost_the_copies() {
        for other in [facts(2, 1), facts(1, 2)] {
            let mut world = world();
            world.on(Event::Down);
            assert_eq!(world.on(Event::Up(other)), Custody::Lost);
        }
    }

    #[test]
    fn a_master_that_is_not_admitted_any_more_has_lost_them_and_begins_anew() {
        let mut world = world();
        world.on(Event::Down);
        let emptied = Facts { record: Record::default(), ..facts(1, 1) };
        assert_eq!(world.on(Event::Up(emptied)), Custody::Lost);
        assert_eq!(world.on(Event::Looked(facts(1, 2))), Custody::Begun);
    }

    #[test]
    fn after_a_push_they_are_kept_where_the_life_proves_unchanged() {
        let mut world = world();
        assert_eq!(world.on(Event::Pushed), Custody::Kept, "not known yet");
        assert_eq!(world.looked(facts(1, 1)), Custody::Kept);
        world.on(Event::Pushed);
        assert_eq!(world.looked(facts(1, 2)), Custody::Lost, "flushed, and admitted by init");
    }

    #[test]
    fn what_was_given_up_begins_anew() {
        let mut world = world();
        world.on(Event::Pushed);
        assert!(world.lives.give_up(0));
        assert!(!world.lives.give_up(0));
        assert_eq!(world.looked(facts(1, 1)), Custody::Begun);
    }
}
