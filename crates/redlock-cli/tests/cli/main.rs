//! Drives the built `redlock` as people and scripts do: as a process, on real servers.

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
