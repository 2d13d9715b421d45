//! A lease from its first extension to its end.

mod deadline;
mod expiry;
mod extension;
mod late_turns;
mod resuming;
mod suspension;
