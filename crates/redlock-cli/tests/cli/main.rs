//! Runs the built `redlock` as users and scripts do: as a process, on real servers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod acl;
mod admission;
mod answers;
mod changes;
mod clocks;
mod config;
mod contention;
mod credentials;
mod dev;
mod doctor;
mod fencing;
mod force;
mod guide;
mod init;
mod keys;
mod list_doubts;
mod listing;
mod lists;
mod loss;
mod masters;
mod nested;
mod once;
mod origins;
mod packages;
mod periodic;
mod permits;
mod procedures;
mod quarantine;
mod quiet;
mod reentrant;
mod release;
mod reserved;
mod rights;
mod run;
mod secrets;
mod sets;
mod signals;
mod support;
mod terminal;
mod tls;
mod usage;
mod waiting;
mod words;
