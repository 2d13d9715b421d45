//! Helpers that tests share: waiting with a deadline, reading the keys without the library, paused
//! servers, and servers that follow a script.
//!
//! They are only for tests, so they panic if something differs from the expectation of the test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

mod clocks;
mod delays;
mod keys;
mod pause;
mod processes;
mod report;
mod scripted;
mod wait;

pub use clocks::{WallClocks, ahead};
pub use delays::Delays;
pub use keys::{
    NO_TRACKING_RIGHTS, calls, copies, fill, has_command, has_setting, keys, no_key_is_left, pttl,
    put, text, value,
};
pub use pause::Paused;
pub use processes::{is_alive, is_stopped, thread_time, waited_for_processor};
pub use report::Report;
pub use scripted::{KNOWS_NONE, NO_RESP3, NO_TRACKING, Peer, ScriptedServer, bulk};
pub use wait::{PATIENCE, eventually, in_time, ms, never, poll, secs};
