//! The five masters of `docker-compose.yml`, killed, paused, cut off and restarted as docker does
//! it. `make test-compose` starts them, runs this and takes them down.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod crowd;
mod faults;
mod image;
mod lab;
mod masters;
mod restarts;
