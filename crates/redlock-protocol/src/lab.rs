//! Common helpers for the tests of several machines.

use std::sync::LazyLock;
use std::time::Duration;

use redlock_core::{Answer, Cause, Instant, Label, NotAdmitted, Token, Ttl, Verdict, WhyNot};

use crate::LostReason;
use crate::client::ids::RequestId;
use crate::client::moment::{Acceptance, Moment};
use crate::terms::{HoldOptions, Timing};
use crate::token::attempt::{Attempt, Origin, Step};
use crate::token::lease::HeldLease;
use crate::votes::answer::{Counts, Judged};
use crate::votes::ledger::Ledger;

/// The TTL of the tests, in milliseconds. It confers a validity of 988 ms.
pub(super) const TTL: u64 = 1_000;
pub(super) const VALIDITY: u64 = 988;
pub(super) const NODE_TIMEOUT: u64 = 50;

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the instant `millis` milliseconds after the clock was created.
pub(super) fn at(millis: u64) -> Instant {
    Instant::ORIGIN.saturating_add(ms(millis))
}

pub(super) fn timing(ttl: u64) -> Timing {
    let px = ttl + ttl / 10;
    Timing { ttl: Ttl::new(ms(ttl), ms(100_000)).unwrap(), node_timeout: ms(NODE_TIMEOUT), px }
}

pub(super) fn attempt(masters: usize, options: HoldOptions, now: Instant) -> Attempt {
    Attempt::new(masters, Origin::Acquired, timing(TTL), options, now)
}

/// Creates a lease of the first `copies` of `masters`, acquired at `now`. The others have not
/// answered.
pub(super) fn lease(
    masters: usize,
    copies: usize,
    options: HoldOptions,
    now: Instant,
) -> HeldLease {
    let mut attempt = attempt(masters, options, now);
    let steps: Vec<Step> =
        (0..copies).map(|master| attempt.vote(master, &Answer::granted(), now, now)).collect();
    assert_eq!(steps.last(), Some(&Step::Won));
    attempt.into_lease(now)
}

pub(super) fn not_ours() -> Answer {
    Answer::new(Verdict::NotOurs)
}

pub(super) fn held() -> Answer {
    Answer::held(None, None)
}

pub(super) fn closed() -> Answer {
    Answer::unknown(Cause::ConnectionClosed)
}

pub(super) fn busy() -> Answer {
    Answer::unknown(Cause::ErrorReply("BUSY".into()))
}

pub(super) fn demoted() -> Answer {
    Answer::unknown(Cause::Demoted("READONLY".into()))
}

pub(super) fn unsent() -> Answer {
    Answer::unsent(Cause::ConnectionRefused)
}

/// Returns the cause for a master that may have lost its data and does not vote.
pub(super) fn checked() -> Cause {
    Cause::NotAdmitted(NotAdmitted::new(WhyNot::Checked).into())
}

/// Creates an answer that is invalid, for a fixed reason.
pub(super) fn uncounted(answer: &Answer) -> Judged<'_> {
    static COUNTS: LazyLock<Counts> = LazyLock::new(|| Counts::Not(checked()));
    Judged { answer, counts: &COUNTS }
}

/// A moment in which nothing moves by itself.
#[derive(Debug)]
pub(super) struct Still(pub(super) Instant);

impl Moment for Still {
    fn now(&mut self) -> Instant {
        self.0
    }

    fn token(&mut self, label: Option<&Label>) -> Token {
        Token::random(label)
    }

    fn nonce(&mut self) -> u64 {
        7
    }

    fn move_deadline(&mut self, _: RequestId, _: Instant, _: Instant) -> bool {
        true
    }

    fn is_held(&mut self, _: RequestId) -> bool {
        true
    }

    fn lose(&mut self, _: RequestId, reason: LostReason, _: &Ledger) -> Option<LostReason> {
        Some(reason)
    }

    fn end(&mut self, _: RequestId) {}

    fn acceptance(&mut self, _: RequestId) -> Acceptance {
        Acceptance::Accepted
    }

    fn change_acceptance(&mut self, _: RequestId, _: Acceptance) -> Acceptance {
        Acceptance::Accepted
    }
}
