//! E4: who is next. Whole clients of a few processes that want one key, as they ship.
//!
//! # What is modelled
//!
//! Processes with callers, masters with one key and its queue, and the messages between them. Each
//! request arrives at any time, and in any order at different masters. Callers come, give up and
//! return their lock at any time. Processes are told of their alarms at any time after they are
//! due, so a process may be slow, and its alarms may be due in any order with those of others.
//!
//! # What is not
//!
//! - A reply is read as its request is carried out. A late reply has the same effect as a late
//!   request, unless another process asks in between.
//! - A request takes no time, or as long as it takes until an alarm.
//! - Each random pause has one length, which follows from the seed.
//! - There are no fencing tokens. The model of a lock has them.

mod action;
mod broken;
mod calm;
mod check;
mod master;
mod moment;
mod part;
mod process;
mod story;
mod world;

pub use broken::Broken;
pub use check::check;
pub use part::{Part, large, named, small};
