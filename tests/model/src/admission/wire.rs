//! Messages between a client and a master.

use redlock_core::admission::{Admit, Begin, Init, Nonce, Note, Score};
use redlock_protocol::admission::{Incarnation, Scored};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) up: bool,
    /// A null push that was not read yet. It precedes every later reply.
    pub(crate) pushed: bool,
    pub(crate) wire: Option<Request>,
    /// Kept for some mutants only: what the handshake said.
    pub(crate) first: Option<First>,
    /// Kept for one mutant only: the floor as read too early.
    pub(crate) early: Option<Vec<Scored>>,
}

/// TIME, our own clock and `max_ttl` at the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct First {
    pub(crate) time: u64,
    pub(crate) now: u64,
    pub(crate) max_ttl: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    Probe,
    Begin(Begin),
    Note(Note),
    Admit(Admit),
    Init(Init),
    Floor(FloorRead),
}

/// A reading of the floor, one master after the other: scores, then who it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FloorRead {
    pub(crate) nonce: Nonce,
    pub(crate) todo: Vec<(usize, Incarnation)>,
    /// The first half of the answer of the first in `todo`.
    pub(crate) half: Option<Half>,
    pub(crate) done: Vec<Scored>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Half {
    Scores(Option<Score>),
    /// A mutant reads this half first.
    Proof(Box<Scored>),
}

impl Link {
    pub(crate) fn down() -> Self {
        Self { up: false, pushed: false, wire: None, first: None, early: None }
    }
}

impl Request {
    /// Whether it does anything when its connection is gone.
    pub(crate) fn is_script(&self) -> bool {
        !matches!(self, Self::Probe | Self::Floor(_))
    }
}
