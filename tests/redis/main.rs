//! Real masters, started and stopped by the tests. Needs `redis-server` or `valkey-server` on the
//! PATH.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod admission;
mod admission_scripts;
mod api;
mod backend;
mod ballots;
mod blind;
mod cancellation;
mod clocks;
mod comebacks;
#[path = "../conformance/mod.rs"]
mod conformance;
mod connections;
mod crowds;
mod dead_masters;
mod driven;
mod ends;
mod errors;
mod exclusion;
mod fencing;
mod forgetting;
mod hand_over;
mod identity;
mod idle;
mod interop;
mod keeper;
mod lab;
mod late;
mod leases;
mod lists;
mod load;
mod long_holds;
mod loss;
mod mixing;
mod no_quorum;
mod order;
mod put_back;
mod queues;
mod recipes;
mod relay;
mod replies;
mod runtimes;
mod shutdown;
mod silence;
mod storm;
mod strangers;
mod tls;
mod two_inits;
mod two_modes;
mod upgrade;
mod urls;
mod voteless;
mod waiting;
mod work;
