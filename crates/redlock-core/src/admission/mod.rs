//! The record by which a master that lost its data is kept from voting. Which masters vote is
//! decided above this crate, from the facts of all of them.
//!
//! # On the server
//!
//! Each master stores two kinds of keys under a prefix:
//!
//! - `redlock-quorum:1`, a hash: the [`Record`].
//! - `redlock-quorum:1:ballots:ID`, a sorted set of 1,024 members `0` to `1023`. `ID` is made of
//!   `run`, see [`Identity::set_name`].
//!
//! Clients without quarantine have one set without `ID`, `redlock-quorum:1:ballots`. The two do not
//! mix: while this set exists, no quarantine starts and no master is admitted, except by an
//! operator's [`Init`] or [`Remove`].

mod identity;
mod op;
mod record;
mod set;

pub use identity::{Identity, InvalidIdentity, ReplId, RunId};
pub use op::{
    AdmissionOp, AdmissionReply, Admit, Begin, Init, Note, Outcome, Remove, Reply, SetChange, Way,
};
pub use record::{
    InvalidNonce, MAX_TTL_MAX, MEMBERS, Nonce, Quarantine, Record, Seen, quarantine_length,
};
pub(crate) use set::printable;
pub use set::{InvalidSet, Names, RecordedSet, SetId};

pub use crate::numbers::{Millis, SCORE_END, Score};
