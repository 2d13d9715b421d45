//! The protocol as pure machines: events and the present instant come in, one step comes out.
//!
//! No code here waits, sends, locks, reads a clock or draws a random number. The manifest and
//! clippy's `disallowed-types` enforce that. All machines are `Clone + Eq + Hash` over small
//! values, so that a test can enumerate every order of events. In reading order:
//!
//! * `votes`: what the answers of N masters mean for one token; `retry`: when to query them again;
//! * `token`: one token from its attempt to its last release; `abandoned`: keys that are left to
//!   expire;
//! * `ballot`: which ballots are proposed, and when a fencing token may be handed out;
//! * `inspection`: what each master reports about a key; `marks`: the work completed under a name,
//!   by the answers of several masters;
//! * `waiting`: the callers that wait for one key, in a `queue`; `meeting_point`: the master at
//!   which the callers of all processes meet;
//! * `throttle`: which warnings are reported;
//! * `admission`: which masters vote, and how a master that lost its data comes to vote again;
//!   `incarnations`: whether earlier confirmations of a master are still valid;
//! * `client`: the parts of one client, and the tables of their entries.

#![cfg_attr(
    test,
    allow(clippy::disallowed_types, reason = "tests may share what machines may not")
)]

pub mod abandoned;
pub mod admission;
pub mod ballot;
pub mod client;
pub mod incarnations;
pub mod inspection;
#[cfg(test)]
mod lab;
mod lost_reason;
pub mod marks;
pub mod master_set;
pub mod meeting_point;
mod queue;
pub mod quorum;
pub mod retry;
pub mod terms;
pub mod throttle;
pub mod token;
pub mod votes;
pub mod waiting;

pub use lost_reason::LostReason;
