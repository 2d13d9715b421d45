//! `RedisNode` against servers that say exactly what a test has them say, byte by byte, the wrong
//! things too. Needs nothing but the loopback interface.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod admission;
mod ballots;
mod client;
mod connection;
mod handshake;
mod protocol;
mod pushes;
mod queues;
mod replies;
