//! Real masters, started and stopped by the tests. Needs `redis-server` or `valkey-server` on the
//! PATH.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod admission;
mod backend;
mod clean_up;
#[path = "../conformance/mod.rs"]
mod conformance;
mod connection;
mod exclusion;
mod faces;
mod fencing;
mod lab;
mod lease;
mod waiting;
