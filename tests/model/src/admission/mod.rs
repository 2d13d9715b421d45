//! E3: which masters vote. The machine and the scripts of admission, as they ship.
//!
//! # What is modelled
//!
//! N masters with their data, clocks and processes; clients with one connection to each; messages
//! on their way, also those of dead connections. One client stays connected, and others connect
//! only briefly. Time is one number. A client's clock follows it, and a master's TIME may be ahead
//! or behind.
//!
//! # What is not
//!
//! - A client acts as soon as it can. A slow client has the same effect as a late message.
//! - A reply arrives as its script ends. A late reply has the same effect as a client that reads
//!   later.
//! - Clocks run at the same rate. The tenth of `max_ttl` and the drift cover different rates.
//! - A server that was a replica forgets it only after a *begin* (`repl-backlog-ttl` is long).
//! - The operator who runs `init` makes a true statement, which holds until the call has returned.

mod action;
mod broken;
mod check;
mod client;
mod fault;
mod part;
mod person;
mod recovery;
mod run;
mod server;
mod story;
mod wire;
mod world;

pub use broken::Broken;
pub use check::check;
pub use part::{Part, large, named, small};
