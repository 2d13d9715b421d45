//! The life of the driver: runtimes that end, idle or panic under it, and its own end. Uses
//! simulated masters that answer immediately, in real time, on real runtimes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod chaos;
mod closing;
mod ends;
mod idle;
mod keepers;
mod lab;
mod meddlers;
mod panics;
mod suspension;
