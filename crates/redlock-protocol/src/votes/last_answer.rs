//! `LastAnswer`: what one master last answered for a token.

use std::time::Duration;

use redlock_core::{Cause, Verdict};
use smallvec::SmallVec;

use crate::votes::answer::Judged;

/// The last answer of one master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LastAnswer {
    /// The meaning of the answer.
    pub verdict: Verdict,
    /// How long the answer took. `None` if the master itself has not answered.
    pub latency: Option<Duration>,
}

impl LastAnswer {
    /// An answer that has not arrived yet.
    pub const PENDING: Self = Self { verdict: Verdict::Pending, latency: None };

    /// Records the answer, with the cause if it is invalid.
    #[inline]
    pub fn of(judged: Judged<'_>, latency: Duration) -> Self {
        let latency = judged.answer.is_reply().then_some(latency);
        Self { verdict: judged.verdict().into_owned(), latency }
    }

    /// Records that no answer will arrive, for this cause.
    pub fn unknown(cause: Cause) -> Self {
        Self { verdict: Verdict::Unknown(cause), latency: None }
    }

    /// Records that the master received no request.
    pub fn unasked() -> Self {
        Self::unknown(Cause::NotSent("it was not queried".into()))
    }

    /// Returns `true` if the answer has not arrived.
    #[inline]
    pub fn is_pending(&self) -> bool {
        matches!(self.verdict, Verdict::Pending)
    }

    /// Ends the wait for the answer.
    pub fn time_out(&mut self) {
        if self.is_pending() {
            *self = Self::unknown(Cause::TimedOut);
        }
    }
}

/// The last answer of each master. Up to five of them need no allocation.
pub(crate) type Answers = SmallVec<[LastAnswer; INLINE]>;
const INLINE: usize = 5;

/// Returns the answers of a ledger without any. Created for each lock and copied if it needs no
/// allocation.
pub(super) fn none_yet(masters: usize) -> Answers {
    const NONE: [LastAnswer; INLINE] = [LastAnswer::PENDING; INLINE];
    if masters <= INLINE {
        Answers::from_buf_and_len(NONE, masters)
    } else {
        SmallVec::from_elem(LastAnswer::PENDING, masters)
    }
}
