//! The copies on a master that reports that its data may be gone.
//!
//! Redis also reports a flush when another database is flushed. If the master has a record, leases
//! are therefore extended only after a probe has proven that the data still exists. Only this
//! master receives these extensions, at most once in [`RECHECK_EVERY`].

use std::time::Duration;

use redlock_core::Instant;

use super::{Context, Masters, News};
use crate::client::view::Voters as _;

/// The time between two batches of extensions at one master. They are not urgent, because the probe
/// has proven that the data is there.
const RECHECK_EVERY: Duration = Duration::from_secs(1);

/// The doubt about the data of one master.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Doubt {
    /// When its copies are disowned, unless its incarnation proves unchanged before.
    until: Option<Instant>,
    /// It has reported since the last batch of extensions.
    owes_recheck: bool,
    /// When the next batch may come.
    recheck_from: Option<Instant>,
    /// When the next batch is considered.
    recheck_at: Option<Instant>,
}

impl Doubt {
    /// Returns when something is due.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.until, self.recheck_at].into_iter().flatten().min()
    }
}

impl Masters {
    /// Handles a report that the data of `master` may be gone. The probe goes first, because its
    /// answer decides whether later answers are valid.
    pub(super) fn data_lost(&mut self, master: usize, cx: &mut Context<'_>) {
        let doubt = &mut self.steps[master].doubt;
        if self.terms.has_quarantine {
            doubt.owes_recheck = true;
            // The first report that no proof has answered decides. Later ones postpone nothing.
            doubt.until.get_or_insert_with(|| cx.now.saturating_add(self.terms.order_timeout));
        } else {
            doubt.until = Some(cx.now.saturating_add(self.terms.node_timeout));
        }
        self.advance_master(master, cx);
        cx.news.push(News::LostSight(master));
        if !self.terms.has_quarantine {
            // Without a record, only the keys themselves can prove that the data is there.
            cx.news.push(News::Suspected(master, self.cause(master, cx.now)));
        }
    }

    /// Handles timers that are due at `seen`.
    pub(super) fn tick_doubt(&mut self, master: usize, seen: Instant, cx: &mut Context<'_>) {
        let doubt = &mut self.steps[master].doubt;
        let is_unproven = doubt.until.take_if(|until| *until <= seen).is_some();
        let may_recheck = doubt.recheck_at.take_if(|at| *at <= seen).is_some();
        if is_unproven {
            if self.give_up(master) {
                cx.news.push(News::Disowned(master, self.cause(master, cx.now)));
            }
            cx.news.push(News::Unproven(master));
        }
        if may_recheck && self.votes(master) {
            self.recheck(master, cx);
        }
    }

    /// Records that `master` votes: a probe after its last report has found the same incarnation.
    pub(super) fn proven(&mut self, master: usize, cx: &mut Context<'_>) {
        if self.terms.has_quarantine {
            self.steps[master].doubt.until = None;
            self.recheck(master, cx);
        }
    }

    /// Requests one extension of each lease at `master`, if the master has reported since the last
    /// extensions.
    fn recheck(&mut self, master: usize, cx: &mut Context<'_>) {
        let doubt = &mut self.steps[master].doubt;
        if !doubt.owes_recheck || doubt.recheck_from.is_some_and(|from| cx.now < from) {
            return;
        }
        let next = Some(cx.now.saturating_add(RECHECK_EVERY));
        (doubt.owes_recheck, doubt.recheck_from, doubt.recheck_at) = (false, next, next);
        cx.news.push(News::Proven(master));
    }
}
