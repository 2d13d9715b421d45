//! The properties of locks.

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
        world.actions(&self.0, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.take(&self.0, action);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one valid holder at most", |model: &Self, world: &World| {
                !model.0.clocks_hold || world.holders(&model.0) < 2
            }),
            Property::always("no key is left once all is acknowledged", |_, world: &World| {
                world.wrong != Some(Wrong::KeyLeft)
            }),
            Property::always("no token is handed out twice", |_, world: &World| {
                world.wrong != Some(Wrong::Twice)
            }),
            Property::always(
                "a token is larger than all that were handed out before its attempt began",
                |_, world: &World| world.wrong != Some(Wrong::OutOfTime),
            ),
            Property::always(
                "a store refuses what comes late, and no rightful holder",
                |_, world: &World| world.wrong != Some(Wrong::OutOfOrder),
            ),
            Property::always(
                "a lock that is handed on has a larger token than the one before it on the lease",
                |_, world: &World| world.wrong != Some(Wrong::OutOfLease),
            ),
            Property::always(
                "masters that two leases share held their keys in the order of their tokens",
                |_, world: &World| world.has_key_order(),
            ),
        ]
    }
}

/// Checks a part: breadth first for a mutant, so that its story is short.
pub fn check(part: &Part) -> Outcome {
    exhaust(Bounded(*part), part.broken.is_some(), |way| story::tell(part, &way))
}
