//! The protocol as pure machines: events and the present instant come in, one step comes out.
//!
//! Nothing here waits, sends, locks, reads a clock or draws a random number; `tests/imports.rs`
//! holds that. All machines are `Clone + Eq + Hash` over small values, so that every order of
//! events can be enumerated. In reading order:
//!
//! * `tally` (is the vote decided?), `validity` (until when do we hold?), `retry` (when again?);
//! * `heard`: what a master has answered, and whether that counts;
//! * `ledger`: what is known of one token on each master;
//! * one machine for each stage of a token: `attempt`, then `lease` (with its `extension`s), then
//!   `release`; `forgotten`: keys that are left to expire;
//! * `ballot`: which ballots are proposed, and when a fencing token may be handed out;
//! * `inspection`: what each master says about a key; `marks`: what was completed under a name, by
//!   what several of them say;
//! * `waiting`: the callers that wait for one key, in a `queue`; `pushes`: whether
//!   reports are of use; `run`: for how long one
//!   process keeps it; `meeting_point`: where they meet;
//! * `throttle`: which warnings are reported;
//! * `admission`: which masters vote, and how one that forgot comes to vote again; `lives`: whether
//!   what they confirmed before still counts.

pub(crate) mod admission;
pub(crate) mod attempt;
pub(crate) mod ballot;
pub(crate) mod extension;
pub(crate) mod forgotten;
pub(crate) mod heard;
pub(crate) mod inspection;
#[cfg(test)]
mod lab;
pub(crate) mod lease;
pub(crate) mod ledger;
pub(crate) mod lives;
pub(crate) mod marks;
pub(crate) mod master_set;
pub(crate) mod median;
pub(crate) mod meeting_point;
#[cfg(test)]
mod orders;
mod pushes;
mod queue;
pub(crate) mod release;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod tally;
pub(crate) mod throttle;
pub(crate) mod validity;
pub(crate) mod waiting;
