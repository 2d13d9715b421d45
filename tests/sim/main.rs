//! Simulated masters in virtual time. Needs nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod admission;
mod arena;
mod backend;
mod clean_up;
#[path = "../conformance/mod.rs"]
mod conformance;
mod exclusion;
mod fencing;
mod lease;
mod recipes;
mod replay;
mod reports;
mod seeds;
mod waiting;
