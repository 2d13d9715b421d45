//! Ballots: the proposals, their acceptances, and when a token may be handed out.
//!
//! A lock's fencing token is a number that the client proposes, and that a quorum of masters
//! accepts while it holds the key there: see `redlock_core::ballot`. Any number is sound. One that
//! is larger than all scores it meets is accepted at once, and a smaller one costs more round
//! trips:
//!
//! * `clock`: how late it is by the masters' clocks, and how far others are ahead of that;
//! * `chooser`: the next ballot for a member;
//! * `proposals`: which masters accepted which ballot of one attempt, and the proof by which its
//!   token may be handed out.

pub mod chooser;
pub mod clock;
pub mod proposals;
