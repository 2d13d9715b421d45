//! Models of the machines of the protocol: every state within stated bounds is visited.
//!
//! `part` says what each part bounds, `broken` what each mutant breaks. The machines and the
//! scripts are the ones that ship; a mutant lies at their edge and changes nothing inside.
//!
//! - `locks`: a token from its attempt to its last release, and its ballot (E1, E2).
//! - `admission`: which masters vote (E3).

pub mod admission;
mod check;
pub mod locks;
mod shared;

pub use check::Outcome;
