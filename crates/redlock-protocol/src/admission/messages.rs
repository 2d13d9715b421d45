//! The messages of the machine: events come in, and steps go out.

use redlock_core::admission::{Admit, Begin, Millis, Nonce, Note, Remove, Reply};

use super::floor::Scored;
use super::view::{Incarnation, MasterTime, MasterView};

/// An event of one master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A new connection has finished its handshake.
    Up(MasterView),
    /// The connection is down.
    Down,
    /// `invalidate null`.
    Pushed,
    /// The answer to [`Step::Probe`], `ZCARD` included.
    Probed(MasterView),
    /// A master has reported facts about itself, in the answer to any request. The machine receives
    /// them before the caller does. If a caller learned of a loss of data first, the machine would
    /// compare the new state with itself.
    Read(MasterView),
    /// `ZCARD` of the set that [`MasterView::members`] describes, by the latest facts.
    Members(u32),
    /// The reply of *begin*, *note*, *admit*, *init* or *remove*.
    Script(Reply),
    /// The answers to [`Step::ReadRecords`], after all have answered or their time is up.
    Records(Vec<(usize, MasterView)>),
    /// The answers to [`Step::AskTimes`], after all have answered or their time is up.
    Times(Nonce, Vec<MasterTime>),
    /// The answers to [`Step::ReadFloor`], after all have answered or their time is up.
    Floors(Nonce, Vec<Scored>),
    /// [`Step::ShowUse`] has finished, successfully or not. A client that lacks the right to it
    /// works anyway.
    Shown,
    /// The pending request failed: an error, or no answer in time.
    Failed,
}

/// The next step for one master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The master votes, is away, or has a request under way.
    Nothing,
    /// Read INFO and the record again, after everything sent so far, and `ZCARD`.
    Probe,
    /// Read the records of these masters for their `max_ttl`.
    ReadRecords(Vec<usize>),
    /// Begin its quarantine.
    Begin(Begin),
    /// Query these masters for TIME, for this quarantine.
    AskTimes(Nonce, Vec<usize>),
    /// Write the members of this prefix to it.
    Note(Note),
    /// Query these masters for the highest score of the set of their incarnation, then for their
    /// identity, record and TIME, for this quarantine.
    ReadFloor(Nonce, Vec<(usize, Incarnation)>),
    /// Admit it: its record names all members.
    Admit(Admit),
    /// Remove the record of a master that was never admitted, for a client without a quarantine.
    Remove(Remove),
    /// Create the ballot set of clients without a quarantine, for a client that sends no ballots.
    /// Clients with a quarantine would not notice it otherwise.
    ShowUse,
    /// Do nothing before this instant of this process's clock, unless an event comes.
    Wait(Millis),
}
