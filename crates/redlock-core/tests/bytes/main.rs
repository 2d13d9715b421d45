//! `RedisNode` against scripted servers that send exact bytes, including wrong ones. Needs only the
//! loopback interface.

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
