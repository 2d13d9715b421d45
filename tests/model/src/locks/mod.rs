//! E1 and E2: tokens from their attempt to their last release.
//!
//! # What is modelled
//!
//! Masters with a key and a clock; contenders with their machines, a clock, and one connection to
//! each master. Every request is executed, and every reply is read, at any time. A broken
//! connection loses the messages on their way. Time is a number of ticks, and clocks slip.
//!
//! # What is not
//!
//! - A request that a dead connection has left on its way, because the server ends that connection
//!   before a new one is used.
//! - Waiting, and which ticket is first at the meeting point, which decide only when a request is
//!   sent. The reservations of a release, and their effect on the next client, are modelled
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
