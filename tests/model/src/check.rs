//! Visits every state within the bounds of a part, or finds one that breaks a property.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::action::Action;
use crate::part::Part;
use crate::story;
use crate::world::World;

struct Bounded(Part);

/// What a run found.
#[derive(Debug)]
pub struct Outcome {
    /// How many different states there are within the bounds.
    pub states: usize,
    /// How long the longest way to a state is.
    pub depth: usize,
    /// How long the run took.
    pub time: Duration,
    /// The property that does not hold, and how it is broken, one line a step.
    pub story: Option<(&'static str, Vec<String>)>,
}

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
                "no master votes while a lock of its former life may be alive",
                |model: &Self, world: &World| !world.votes_too_early(&model.0),
            ),
            Property::always("one valid holder at most", |model: &Self, world: &World| {
                !model.0.locks || world.holders() < 2
            }),
            Property::always("an end is not moved without a reason", |_, world: &World| {
                world.wrong != Some(crate::world::Wrong::EndMoved)
            }),
            Property::always(
                "an admitted master is not put into quarantine",
                |_, world: &World| world.wrong != Some(crate::world::Wrong::Unseated),
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
    let start = Instant::now();
    let builder = Bounded(*part).checker().finish_when(HasDiscoveries::Any);
    if part.broken.is_some() {
        outcome(builder.spawn_bfs().join(), start)
    } else {
        outcome(builder.threads(2).spawn_dfs().join(), start)
    }
}

fn outcome(checker: impl Checker<Bounded>, start: Instant) -> Outcome {
    let found = checker.discoveries().into_iter().min_by_key(|(name, _)| *name);
    Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        time: start.elapsed(),
        story: found.map(|(name, path)| (name, story::tell(&path.into_vec()))),
    }
}

impl World {
    fn votes_too_early(&self, part: &Part) -> bool {
        let owes = |master: usize| self.servers[master].owed_until > self.now;
        let counts =
            |master: usize| (0..part.clients).any(|client| self.counts(part, client, master));
        (0..part.masters).any(|master| owes(master) && counts(master))
    }

    fn holders(&self) -> usize {
        let valid = |held: &Vec<u64>| {
            held.iter().filter(|until| **until > self.now).count() > held.len() / 2
        };
        self.clients.iter().filter(|client| valid(&client.held)).count()
    }
}
