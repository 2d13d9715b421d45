//! The properties of admission.

use stateright::{Model, Property};

use super::action::Action;
use super::client::Client;
use super::part::Part;
use super::story;
use super::world::World;
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
            Property::always(
                "no master votes while a lock of its former incarnation may be alive",
                |model: &Self, world: &World| !world.votes_too_early(&model.0),
            ),
            Property::always("one valid holder at most", |model: &Self, world: &World| {
                !model.0.locks || world.holders() < 2
            }),
            Property::always("an end is not moved without a reason", |_, world: &World| {
                world.wrong != Some(super::world::Wrong::EndMoved)
            }),
            Property::always(
                "an admitted master is not put into quarantine",
                |_, world: &World| world.wrong != Some(super::world::Wrong::Unseated),
            ),
            Property::always("no script removes the set of masters", |_, world: &World| {
                world.wrong != Some(super::world::Wrong::SetRemoved)
            }),
            Property::always(
                "no client refuses a master of one list for its set",
                |model: &Self, world: &World| !world.refuses(&model.0),
            ),
            Property::always(
                "no admitted master is below a ballot it has accepted",
                |_, world: &World| world.servers.iter().all(|server| !server.is_behind()),
            ),
            Property::always(
                "every master that stays up is admitted in the end",
                |model: &Self, world: &World| !model.0.recovery || world.recovers(&model.0),
            ),
        ]
    }
}

/// Checks a part: breadth first for a mutant, so that its story is short.
pub fn check(part: &Part) -> Outcome {
    exhaust(Bounded(*part), part.broken.is_some(), |path| story::tell(&path))
}

impl World {
    fn votes_too_early(&self, part: &Part) -> bool {
        let owes = |master: usize| self.servers[master].owed_until > self.now;
        let counts =
            |master: usize| (0..part.clients).any(|client| self.counts(part, client, master));
        (0..part.masters).any(|master| owes(master) && counts(master))
    }

    fn refuses(&self, part: &Part) -> bool {
        let misfits =
            |client: &Client| (0..part.masters).any(|one| client.machine.misfit(one).is_some());
        self.clients.iter().any(|client| misfits(client))
    }

    fn holders(&self) -> usize {
        let valid = |held: &Vec<u64>| {
            held.iter().filter(|until| **until > self.now).count() > held.len() / 2
        };
        self.clients.iter().filter(|client| valid(&client.held)).count()
    }
}
