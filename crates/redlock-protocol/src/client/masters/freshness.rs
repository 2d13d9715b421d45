//! Connected masters are probed about once a minute.
//!
//! An open connection reports a loss of data. It does not report that another `init` wrote another
//! `max_ttl` or converted the prefix, nor that a ballot set was deleted. One probe shows all of
//! that, and the TIME of the master, on which ballots depend. The probe is a separate request of
//! four short commands, because idle handles have the oldest facts and send no other requests.
//!
//! *A probe that fails* changes nothing, and the next one follows a minute later. *A null push that
//! comes before its answer* causes another probe, and this answer is ignored.

use std::time::Duration;

use redlock_core::Instant;
use redlock_core::admission::AdmissionOp;

use super::{Context, Masters, News};
use crate::client::ids::Asker;

/// Facts of this age are read again.
pub const FRESH_FOR: Duration = Duration::from_secs(60);

impl Masters {
    /// Reads old facts again. Skips masters that were probed a moment ago, for example on a new
    /// connection, and masters that do not vote, whose steps probe them every second. Returns when
    /// to do it next. Handles that were made together do not stay together, by `random` from 0 to
    /// 1.
    pub fn refresh(&mut self, random: f64, cx: &mut Context<'_>) -> Instant {
        for (master, link) in self.links.0.iter().enumerate() {
            if link.read_at.saturating_add(FRESH_FOR / 2) <= cx.now {
                cx.news.push(News::Ask(master, AdmissionOp::ReadFacts.into(), Asker::Fresh));
            }
        }
        cx.now.saturating_add(FRESH_FOR.mul_f64(0.75 + random / 2.0))
    }
}
