//! Reports: the state of each master, for operators. Nothing is written.

use redlock_core::admission::{AdmissionOp, AdmissionReply};
use redlock_core::{Cause, Facts, Instant};

use super::{Asker, Context, Seen, Told, View};
use crate::master_set::MasterSet;
use crate::quorum::lower_median;

/// The reports that are being made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Reports {
    open: Vec<Report>,
    number: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Report {
    number: u32,
    asked: MasterSet,
    pending: MasterSet,
    said: Vec<Option<Result<Probed, Cause>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Probed {
    facts: Facts,
    members: Option<u32>,
    at: Instant,
    /// Why the master did not vote at the time of this answer, because a later standing might
    /// contradict it.
    why_not: Option<Cause>,
}

/// The state of one master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReportRow {
    /// Why it does not vote, or did not answer. `None` if it answered and votes.
    pub why_not: Option<Cause>,
    /// Why it gets no requests for new locks although it may vote.
    pub why_no_locks: Option<Cause>,
    /// The report of its server. `None` if it did not answer.
    pub server: Option<Server>,
}

/// The report of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Its facts.
    pub facts: Facts,
    /// How many members its ballot set has, if they were counted.
    pub members: Option<u32>,
    /// How far its clock is ahead of the median of the masters' clocks, in milliseconds.
    pub clock_offset_ms: Option<i64>,
}

impl Reports {
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    pub(super) fn begin(&mut self, view: &impl View, cx: &mut Context<'_>) -> u32 {
        self.number = self.number.wrapping_add(1);
        let (number, said) = (self.number, vec![None; view.count()]);
        let (asked, pending) = (MasterSet::EMPTY, MasterSet::EMPTY);
        self.open.push(Report { number, asked, pending, said });
        self.proceed(number, view, cx);
        number
    }

    /// Queries the masters that have connected since then, and completes the report if all have
    /// answered. Otherwise a master that connects late would be left out without a reason.
    fn proceed(&mut self, number: u32, view: &impl View, cx: &mut Context<'_>) {
        let mut open = self.open.iter_mut();
        let Some(report) = open.find(|report| report.number == number) else { return };
        let added = view.connected().without(report.asked);
        report.asked = report.asked.union(added);
        report.pending = report.pending.union(added);
        let ask = |master| Told::Ask(master, AdmissionOp::ReadFacts.into(), Asker::Report(number));
        cx.news.extend(added.iter().map(ask));
        if report.pending.is_empty() {
            self.end(number, view, cx);
        }
    }

    pub(super) fn answered(
        &mut self,
        number: u32,
        master: usize,
        said: Result<AdmissionReply, Cause>,
        view: &impl View,
        cx: &mut Context<'_>,
    ) {
        let mut open = self.open.iter_mut();
        let Some(report) = open.find(|report| report.number == number) else { return };
        report.said[master] = match said {
            Ok(AdmissionReply::Facts { facts, members }) => {
                let why_not = view.seen(master, cx.now).why_not;
                Some(Ok(Probed { facts, members, at: cx.now, why_not }))
            }
            Ok(_) => None,
            Err(cause) => Some(Err(cause)),
        };
        report.pending.remove(master);
        self.proceed(number, view, cx);
    }

    /// Completes a report: all masters have answered, or its time is over.
    pub(super) fn end(&mut self, number: u32, view: &impl View, cx: &mut Context<'_>) {
        let place = self.open.iter().position(|report| report.number == number);
        let Some(place) = place else { return };
        let Report { said, .. } = self.open.swap_remove(place);
        let probed = said.iter().flatten().filter_map(|said| said.as_ref().ok());
        let mut clocks: Vec<i64> = probed.filter_map(Probed::ahead).collect();
        let median = lower_median(&mut clocks);
        let row = |(master, said): (usize, Option<Result<Probed, Cause>>)| {
            // The lists of all rows are the latest one: an address that was connected in the
            // meantime may be a duplicate.
            let Seen { why_not, why_no_locks, .. } = view.seen(master, cx.now);
            let (why_not, server) = match said {
                Some(Ok(said)) => (said.why_not.clone(), Some(said.server(median))),
                Some(Err(cause)) => (why_not.or(Some(cause)), None),
                None => (why_not.or(Some(Cause::TimedOut)), None),
            };
            ReportRow { why_not, why_no_locks, server }
        };
        let rows = said.into_iter().enumerate().map(row).collect();
        cx.news.push(Told::Report(number, rows));
    }
}

impl Probed {
    /// Returns how far the clock of the master is ahead of ours, which has no date.
    fn ahead(&self) -> Option<i64> {
        let time = self.facts.time_us? / 1_000;
        let at = self.at.as_nanos() / 1_000_000;
        i64::try_from(time).ok()?.checked_sub(i64::try_from(at).ok()?)
    }

    fn server(self, median: Option<i64>) -> Server {
        let offset = self.ahead().zip(median).map(|(ahead, median)| ahead - median);
        Server { facts: self.facts, members: self.members, clock_offset_ms: offset }
    }
}
