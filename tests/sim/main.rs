//! Simulated masters in virtual time. Needs nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod answers;
mod arena;
mod backend;
mod blind;
mod broken_tokens;
mod cancellation;
mod checker_catches_bugs;
mod confirming;
#[path = "../conformance/mod.rs"]
mod conformance;
mod contenders;
mod deadline;
mod doubts;
mod expiry;
mod extension;
mod faults;
mod forgetting;
mod freshness;
mod hand_over;
mod init;
mod late_turns;
mod lists;
mod load;
mod locker;
mod log;
mod mixing;
mod mutual_exclusion;
mod once;
mod pace;
mod quarantine_ends;
mod queue;
mod reentrant;
mod release;
mod resuming;
mod seeds;
mod sets;
mod stats;
mod suspension;
mod tokens;
mod try_run;
mod turns;
mod two_inits;
mod unaccepted;
mod uptime;
mod voteless;
mod waiting;
mod warnings;
