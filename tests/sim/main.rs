//! Simulated masters in virtual time. Needs nothing.

mod backend;
mod checker_catches_bugs;
#[path = "../conformance/mod.rs"]
mod conformance;
mod locker;
mod seeds;
