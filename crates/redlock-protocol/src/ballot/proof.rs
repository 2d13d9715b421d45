//! When a token may be handed out.

use redlock_core::{Ballot, Instant};

use super::proposals::Proposals;

/// A ballot that may be handed out, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Proof {
    /// The ballot.
    pub ballot: Ballot,
    /// Until then a quorum of those that accepted it are known to hold the key.
    pub until: Instant,
}

/// The ballot whose token may be handed out the longest: a quorum of masters has accepted this one,
/// and is known to hold the key until then. None where no ballot has a quorum.
pub fn proof(proposals: &Proposals) -> Option<Proof> {
    let proof = |(ballot, until)| Proof { ballot, until };
    proposals.accepted().map(proof).max_by_key(|proof| proof.until)
}
