//! The state of the model.

use super::contender::Contender;
use super::master::Master;
use super::part::Part;
use crate::shared::Shared;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: u8,
    pub(crate) masters: Vec<Shared<Master>>,
    pub(crate) contenders: Vec<Shared<Contender>>,
    /// What has happened that must never happen.
    pub(crate) wrong: Option<Wrong>,
    pub(crate) left: Left,
}

/// What may still happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) extensions: u8,
    pub(crate) breaks: u8,
    pub(crate) cancels: u8,
    pub(crate) slips: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrong {
    /// All is acknowledged, and a key is still there.
    KeyLeft,
}

impl World {
    pub(crate) fn new(part: &Part) -> Self {
        Self {
            now: 0,
            masters: vec![Master::default().into(); part.masters],
            contenders: part.attempts.iter().map(|_| Contender::new(part).into()).collect(),
            wrong: None,
            left: Left {
                extensions: part.extensions,
                breaks: part.breaks,
                cancels: part.cancels,
                slips: part.slips,
            },
        }
    }

    /// How many believe to hold the lock, each by its own clock.
    pub(crate) fn holders(&self, part: &Part) -> usize {
        let holds = |own: &&Shared<Contender>| own.is_holder(own.clock(part, self.now));
        self.contenders.iter().filter(holds).count()
    }
}
