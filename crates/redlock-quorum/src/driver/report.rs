//! Reports: the state of each master, for operators. Nothing is written.

use std::time::Duration;

use redlock_core::admission::{AdmissionOp, AdmissionReply, Millis};
use redlock_core::{Cause, Facts, Instant};
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::quorum::lower_median;

use super::Driver;
use super::command::ReportReply;
use super::timers::Due;
use crate::report::{NodeReport, ServerReport, Standing};
use redlock_protocol::client::ids::Asker;

/// The reports that are being made.
#[derive(Default)]
pub(super) struct Reports {
    open: Vec<Report>,
    number: u32,
}

struct Report {
    number: u32,
    reply: ReportReply,
    pending: MasterSet,
    said: Vec<Option<Probed>>,
}

#[derive(Clone)]
struct Probed {
    facts: Facts,
    members: Option<u32>,
    at: Instant,
    /// As of this answer: what comes later would not fit it.
    standing: (Standing, Option<Cause>),
}

impl Reports {
    /// No task works on the driver any more: callers ask again.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }
}

impl Driver {
    pub(super) fn report(&mut self, reply: ReportReply, now: Instant) {
        self.reports.number = self.reports.number.wrapping_add(1);
        let number = self.reports.number;
        let masters = self.masters.len();
        let pending: MasterSet = (0..masters).filter(|one| self.masters.is_up(*one)).collect();
        let said = vec![None; masters];
        self.reports.open.push(Report { number, reply, pending, said });
        for master in pending.iter() {
            self.nodes.ask(master, AdmissionOp::ReadFacts, Asker::Report(number), now);
        }
        let until = now.saturating_add(self.settings.order_timeout());
        self.timers.enter(until, Due::Report(number));
        if pending.is_empty() {
            self.report_due(number, now);
        }
    }

    pub(super) fn report_answered(
        &mut self,
        number: u32,
        master: usize,
        said: Result<AdmissionReply, Cause>,
        now: Instant,
    ) {
        let standing = self.standing_for_locks(master, now);
        let mut open = self.reports.open.iter_mut();
        let Some(report) = open.find(|report| report.number == number) else { return };
        if let Ok(AdmissionReply::Facts { facts, members }) = said {
            report.said[master] = Some(Probed { facts, members, at: now, standing });
        }
        report.pending.remove(master);
        if report.pending.is_empty() {
            self.report_due(number, now);
        }
    }

    /// All have answered, or their time is over.
    pub(super) fn report_due(&mut self, number: u32, now: Instant) {
        let place = self.reports.open.iter().position(|report| report.number == number);
        let Some(place) = place else { return };
        let Report { reply, said, .. } = self.reports.open.swap_remove(place);
        let median = median(&said);
        let nodes = said.iter().enumerate().map(|(master, said)| {
            let known = said.as_ref().map(|said| said.standing.clone());
            let (standing, cause) = known.unwrap_or_else(|| self.standing_for_locks(master, now));
            let node = self.nodes.names[master].clone();
            let server = said.as_ref().map(|said| server(said, median));
            NodeReport { node, standing, cause, server }
        });
        // A caller that has stopped waiting does not need to know.
        let _ = reply.send(nodes.collect());
    }

    /// The standing of a master, and why it gets no requests for new locks.
    fn standing_for_locks(&self, master: usize, now: Instant) -> (Standing, Option<Cause>) {
        let (standing, cause) = self.standing(master, now);
        (standing, cause.or_else(|| self.masters.misfit(master)))
    }

    /// The standing of a master, and why it does not vote.
    pub(super) fn standing(&self, master: usize, now: Instant) -> (Standing, Option<Cause>) {
        if self.masters.votes(master) {
            return (Standing::Admitted, None);
        }
        let cause = self.masters.cause(master, now);
        (Standing::of(&cause), Some(cause))
    }
}

/// How far the clock of a master is ahead of ours, which has no date.
fn ahead(said: &Probed) -> Option<i64> {
    let time = said.facts.time_us? / 1_000;
    let at = said.at.as_nanos() / 1_000_000;
    i64::try_from(time).ok()?.checked_sub(i64::try_from(at).ok()?)
}

/// The lower median of the masters' clocks.
fn median(said: &[Option<Probed>]) -> Option<i64> {
    let mut clocks: Vec<i64> = said.iter().flatten().filter_map(ahead).collect();
    lower_median(&mut clocks)
}

fn server(said: &Probed, median: Option<i64>) -> ServerReport {
    let facts = &said.facts;
    let record = facts.record.as_deref().cloned().unwrap_or_default();
    let time = facts.time_us.map_or(0, |micros| micros / 1_000);
    let quarantine = facts.identity.and_then(|identity| record.quarantine_of(identity));
    let left = |until: Millis| Duration::from_millis(until.saturating_sub(time));
    let replid = facts.identity.and_then(|identity| identity.replid);
    ServerReport {
        run_id: facts.run_id.clone(),
        replid: replid.map(|replid| replid.to_string()),
        role: facts.role.to_string(),
        is_cluster: facts.is_cluster,
        is_loading: facts.is_loading(),
        uptime: facts.uptime,
        max_ttl: record.max_ttl.map(Duration::from_millis),
        admitted_as: record.run.map(|run| run.to_string()),
        set: record.set.clone(),
        floor: record.floor,
        ballots: said.members.filter(|_| record.run.is_some()),
        quarantine_left: quarantine.map(|quarantine| left(quarantine.until)),
        tracks: facts.tracks,
        has_barrier: facts.has_barrier,
        clock_offset_ms: ahead(said).zip(median).map(|(ahead, median)| ahead - median),
    }
}
