//! Real masters, started and stopped by the tests. Needs `redis-server` or `valkey-server` on the
//! PATH.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod backend;
#[path = "../conformance/mod.rs"]
mod conformance;
