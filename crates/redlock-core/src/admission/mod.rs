//! What one master keeps so that it does not vote after it forgot: values, and what each script
//! does to them. Which masters vote is decided above this crate, from the facts of all of them.
//!
//! # On the server
//!
//! A namespace is a prefix. Each master keeps two kinds of keys for it, behind the prefix:
//!
//! - `redlock-quorum:1`, a hash: the [`Record`].
//! - `redlock-quorum:1:ballots:ID`, a sorted set of 1,024 members `0` to `1023`. `ID` is made of
//!   `run`, see [`Identity::set_name`].
//!
//! Clients without quarantine have one set without `ID`, `redlock-quorum:1:ballots`. The two do not
//! mix: where it is, nothing is begun and nothing is admitted, but by a person's [`Init`] or
//! [`Remove`].

mod data;
mod identity;
mod order;
mod record;

pub use data::{Ballots, Data};
pub use identity::{Identity, InvalidIdentity, ReplId, RunId};
pub use order::{
    Admit, Begin, Init, Note, Order, OrderSlot, Ordered, Outcome, Remove, Reply, Said, Way,
};
pub use record::{
    InvalidNonce, MAX_TTL_MAX, MEMBERS, Millis, Nonce, Quarantine, Record, SCORE_END, Score, Seen,
    quarantine_length,
};
