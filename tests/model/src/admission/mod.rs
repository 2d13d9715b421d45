//! E3: which masters vote. The machine and the scripts of admission, as they ship.
//!
//! # What is modelled
//!
//! N masters with their data, clocks and processes; clients with one connection to each; what is
//! on the way; what a dead connection left on the way. One client stays, others live a moment.
//! Time is one number. A client's clock follows it, a master's TIME may be ahead or behind.
//!
//! # What is not
//!
//! - A client acts as soon as it can. A slow one is a message that is late.
//! - A reply arrives as its script ends. A late one is a client that looks later.
//! - Clocks go at the same rate: the tenth of `max_ttl` and the drift are for that.
//! - A server that was a replica forgets it only after a *begin* (`repl-backlog-ttl` is long).
//! - The person who types `init` states the truth, and it holds until the call has returned.

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
