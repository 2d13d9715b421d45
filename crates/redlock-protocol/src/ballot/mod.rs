//! Ballots: proposals, their acceptances, and when a token may be handed out. See section 8 of
//! `docs/PROTOCOL.md`.
//!
//! The fencing token of a lock is a number that the client proposes and that a quorum of masters
//! accepts while it holds the key: see `redlock_core::ballot`. Any number is sound. A number larger
//! than all scores it meets is accepted immediately. A smaller one costs more round trips:
//!
//! * `clock`: how late it is by the masters' clocks, and how far other clients are ahead of that;
//! * `chooser`: the next ballot for a member;
//! * `proposals`: which masters accepted which ballot of one attempt, and the proof that allows its
//!   token to be handed out.

pub mod chooser;
pub mod clock;
pub mod proposals;
