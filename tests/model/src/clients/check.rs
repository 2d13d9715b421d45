//! The properties of waiting.

use stateright::{Model, Property};

use super::action::Action;
use super::part::Part;
use super::story;
use super::world::{World, Wrong};
use crate::check::{Outcome, exhaust};

struct Bounded(Part);

impl Model for Bounded {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.0)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.wrong.is_none() {
            world.actions(&self.0, actions);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.take(&self.0, action);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one valid holder at most", |_, world: &World| {
                world.processes.iter().filter(|one| one.is_held(world.now)).count() < 2
            }),
            Property::always("callers of one process come in order", |_, world: &World| {
                world.wrong != Some(Wrong::Overtaken)
            }),
            Property::always("few leases pass a process in the queue", |_, world: &World| {
                world.wrong != Some(Wrong::Passed)
            }),
            Property::always("no place without a caller", |model: &Self, world: &World| {
                !world.keeps_place(&model.0)
            }),
            Property::always("every caller is served in time", |model: &Self, world: &World| {
                !world.is_quiet() || world.serves_all(&model.0)
            }),
        ]
    }
}

/// Checks a part: breadth first for a mutant, so that its story is short.
pub fn check(part: &Part) -> Outcome {
    exhaust(Bounded(*part), part.broken.is_some(), |path| story::tell(&path))
}

impl World {
    /// Whether a running process without a caller has a place, once all messages have arrived. A
    /// broken connection may lose the request that gives it up.
    fn keeps_place(&self, part: &Part) -> bool {
        let has_place = |own: usize| {
            let ticket = self.processes[own].ticket();
            self.masters.iter().any(|master| master.tickets.rank(ticket).is_some())
        };
        let mut idle = (0..self.processes.len())
            .filter(|own| !self.processes[*own].is_stopped && !self.processes[*own].waits());
        let has_lost = part.breaks > self.left.breaks;
        !has_lost && self.is_quiet() && idle.any(has_place)
    }
}
