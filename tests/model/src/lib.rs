//! Models of the machines of the protocol, which visit every state within stated bounds.
//!
//! `part` has the bounds of each part, and `broken` the rule that each mutant breaks. The machines
//! and the scripts are the real ones. A mutant changes only their inputs and outputs.
//!
//! - `locks`: a token from its attempt to its last release, and its ballot (E1, E2).
//! - `admission`: which masters vote (E3).
//! - `clients`: whole clients of a few processes that want one key (E4).

pub mod admission;
mod check;
pub mod clients;
pub mod locks;
mod shared;

pub use check::Outcome;
