//! E1 and E2: tokens from their attempt to their last release.
//!
//! # What is modelled
//!
//! Masters with a key and a clock; contenders with their machines, a clock, and one connection to
//! each master. Every request is carried out, and every reply is read, at any time; a connection
//! that breaks loses what was on its way. Time is one number of ticks; clocks slip.
//!
//! # What is not
//!
//! - A request that a dead connection has left on the way: the connection is ended on the server
//!   before a new one is used.
//! - Waiting, and which ticket is first at the meeting point: they decide when something is sent.
//!   What a release leaves there and elsewhere, and what the next one does with it, is modelled
//!   (`queue`).

mod action;
mod broken;
mod check;
mod contender;
mod driver;
mod hand_over;
mod lies;
mod loss;
mod master;
mod part;
mod queue;
mod resume;
mod story;
mod wire;
mod world;

pub use broken::Broken;
pub use check::check;
pub use part::{Part, large, named, small};
