//! Visits every state within the bounds, or finds a state that breaks a property.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

/// The result of a run.
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

/// A way through a model: each state with the action that was taken there.
type Way<M> = Vec<(<M as Model>::State, Option<<M as Model>::Action>)>;

/// Visits all states of a model: breadth first where a counterexample is looked for, so that its
/// story is short.
pub(crate) fn exhaust<M>(model: M, is_broken: bool, tell: impl Fn(Way<M>) -> Vec<String>) -> Outcome
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + Send + Sync + PartialEq,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let start = Instant::now();
    let builder = model.checker().finish_when(HasDiscoveries::Any);
    if is_broken {
        outcome(&builder.spawn_bfs().join(), start, tell)
    } else {
        outcome(&builder.threads(2).spawn_dfs().join(), start, tell)
    }
}

fn outcome<M: Model>(
    checker: &impl Checker<M>,
    start: Instant,
    tell: impl Fn(Way<M>) -> Vec<String>,
) -> Outcome
where
    M::State: Clone + Debug + Hash + PartialEq,
    M::Action: Clone + Debug + PartialEq,
{
    let found = checker.discoveries().into_iter().min_by_key(|(name, _)| *name);
    let story =
        found.map(|(name, path)| (name, tell(until_broken(checker, name, path.into_vec()))));
    Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        time: start.elapsed(),
        story,
    }
}

/// The checker may continue for a while after a state in which a property does not hold.
fn until_broken<M: Model>(checker: &impl Checker<M>, name: &str, mut way: Way<M>) -> Way<M>
where
    M::State: Clone + Debug + Hash + PartialEq,
    M::Action: Clone + Debug + PartialEq,
{
    let model = checker.model();
    let property = model.properties().into_iter().find(|property| property.name == name);
    let is_broken = |state: &M::State| {
        property.as_ref().is_some_and(|property| !(property.condition)(model, state))
    };
    if let Some(end) = way.iter().position(|(state, _)| is_broken(state)) {
        way.truncate(end + 1);
    }
    way
}
