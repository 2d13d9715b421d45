//! Drives the built `redlock` as people and scripts do: as a process, on real servers.

// Helpers are not tests to the linter, and say what they expect by unwrapping all the same.
#![allow(clippy::unwrap_used)]

mod answers;
mod contention;
mod dev;
mod loss;
mod masters;
mod run;
mod secrets;
mod signals;
mod support;
mod terminal;
mod usage;
