//! Models of the machines of the protocol: every state within stated bounds is visited.
//!
//! `part` says what each part bounds, `broken` what each mutant breaks. The machines and the
//! scripts are the ones that ship; a mutant lies at their edge and changes nothing inside.
//!
//! - `locks`: a token from its attempt to its last release, and its ballot (E1, E2).
//! - `admission`: which masters vote (E3).

// The machines are tested where they are.
#![cfg(not(test))]

#[allow(dead_code, unused_imports, reason = "a model drives a part of the machines' surface")]
#[path = "../../../crates/redlock-quorum/src/protocol/mod.rs"]
mod protocol;

// What the machines import.
#[allow(
    dead_code,
    unreachable_pub,
    unnameable_types,
    reason = "the machines use less of it than the crate does"
)]
#[path = "../../../crates/redlock-quorum/src/lost.rs"]
mod lost;
#[allow(
    dead_code,
    unreachable_pub,
    unnameable_types,
    reason = "the machines use less of it than the crate does"
)]
#[path = "../../../crates/redlock-quorum/src/quorum.rs"]
mod quorum;
#[allow(
    dead_code,
    unreachable_pub,
    unnameable_types,
    reason = "the machines use less of it than the crate does"
)]
#[path = "../../../crates/redlock-quorum/src/settings.rs"]
mod settings;
#[allow(
    dead_code,
    unreachable_pub,
    unnameable_types,
    reason = "the machines use less of it than the crate does"
)]
#[path = "../../../crates/redlock-quorum/src/votes.rs"]
mod votes;

pub mod admission;
mod check;
pub mod locks;
mod shared;

pub use check::Outcome;
