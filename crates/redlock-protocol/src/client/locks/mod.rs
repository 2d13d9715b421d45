//! The tokens of one client, from their attempts to their last releases.
//!
//! `unacknowledged`: releases that masters did not acknowledge.

pub mod unacknowledged;
