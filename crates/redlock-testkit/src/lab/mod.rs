//! Helpers that tests share: waiting with a deadline, reading the keys without the library, servers
//! that are stopped for a while, and servers that follow a script.
//!
//! They are for tests only: where something is not as a test expects, they panic.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

mod clocks;
mod keys;
mod pause;
mod processes;
mod report;
mod scripted;
mod wait;

pub use clocks::{WallClocks, ahead};
pub use keys::{calls, copies, fill, keys, no_key_is_left, pttl, put, text, value};
pub use pause::Paused;
pub use processes::{is_alive, is_stopped, thread_time};
pub use report::Report;
pub use scripted::{KNOWS_NONE, NO_RESP3, NO_TRACKING, Peer, ScriptedServer, bulk};
pub use wait::{PATIENCE, eventually, in_time, ms, never, poll, secs};
