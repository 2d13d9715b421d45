//! Inspections: what each master reports about a key or a mark.

use std::time::Duration;

use redlock_core::{Cause, Instant, Verdict, Vote};
use redlock_protocol::client::ids::{InspectionId, RequestId, Ticket};
use redlock_protocol::client::line::Outgoing;
use redlock_protocol::client::questions::{About, Asked};
use redlock_protocol::client::timers::Due;
use redlock_protocol::client::view::View as _;
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::token::attempt::Defeat;
use redlock_protocol::votes::answer::Counts;
use redlock_protocol::votes::ledger::LastAnswer;

use super::Driver;
use super::command::{MarkReply, MarkVotes, StatusReply, WaitersReply};
use super::observe::LIVES_TOO_LONG;
use super::observing::Observing;
use crate::hold::votes;
use crate::status::Status;
use crate::votes::NodeVote;

/// A caller that waits for answers about a key or a mark.
pub(super) enum Inspecting {
    Status(StatusReply),
    Waiters(WaitersReply),
    Mark(MarkReply),
    Observer(Observing),
}

impl Driver {
    /// Queries these masters when it is the turn of the question. Contenders can meet at different
    /// masters, so all of them are queried for the number of waiters.
    pub(super) fn inspect(
        &mut self,
        about: About,
        asked: MasterSet,
        node_timeout: Duration,
        asker: Inspecting,
    ) {
        let is_mark = matches!(about, About::Mark(..));
        let id = self.questions.inspect(about, asked, node_timeout, &self.masters);
        self.askers.inspecting.insert(id, asker);
        self.line.push(if is_mark { Outgoing::Mark(id) } else { Outgoing::Inspection(id) });
    }

    /// Queries who holds the lock that a caller did not get. `answers` are the votes on its last
    /// attempt, if there was one.
    pub(super) fn explain(
        &mut self,
        caller: RequestId,
        defeat: Defeat,
        answers: Vec<LastAnswer>,
    ) -> Option<InspectionId> {
        let caller_of = self.requests.get_mut(caller)?;
        caller_of.set_failed();
        let about = About::Failure(caller_of.key.clone(), vec![caller], defeat);
        let node_timeout = caller_of.timing.node_timeout;
        let id = self.questions.explain(about, answers, node_timeout, &self.masters);
        self.line.push(Outgoing::Inspection(id));
        Some(id)
    }

    /// Lets these callers, whose waits end within the time of one question, share the question.
    /// Returns the last one.
    pub(super) fn explain_together(
        &mut self,
        callers: Vec<RequestId>,
        mut shared: Option<InspectionId>,
    ) -> Option<InspectionId> {
        for caller in callers {
            let is_shared = shared.is_some_and(|id| self.questions.share(id, caller));
            if !is_shared {
                shared = self.explain(caller, Defeat::Outvoted, Vec::new()).or(shared);
            } else if let Some(request) = self.requests.get_mut(caller) {
                request.set_failed();
            }
        }
        shared
    }

    pub(super) fn send_inspection(&mut self, id: InspectionId, now: Instant) {
        let Some(Asked { op, masters, until }) = self.questions.turn(id, now) else { return };
        self.line.open();
        self.timers.enter(until, Due::Inspection(id));
        let masters = self.track(id, &op, masters, now);
        self.send(&op, masters, Ticket::Inspection(id), now);
    }

    /// Handles the answer of a master to an inspection.
    pub(super) fn inspection_vote(
        &mut self,
        id: InspectionId,
        vote: &Vote,
        counts: &Counts,
        now: Instant,
    ) {
        if let Verdict::Held { ttl: Some(ttl), .. } = vote.answer.verdict
            && ttl > self.settings.expiry_max(self.masters.max_ttl())
            && self.questions.contains(id)
        {
            self.observer.weakness(vote.master, LIVES_TOO_LONG, now);
        }
        self.with_questions(now, |questions, masters, _, cx| {
            questions.vote(id, vote, counts, masters, cx);
        });
    }

    /// Answers the callers of a question. A caller that has stopped waiting does not need to know.
    pub(super) fn inspected(
        &mut self,
        id: InspectionId,
        about: About,
        answers: &[LastAnswer],
        now: Instant,
    ) {
        let names = &self.nodes.names;
        match (about, self.askers.inspecting.remove(&id)) {
            (About::Failure(_, callers, defeat), _) => {
                for caller in callers {
                    if let Some(request) = self.requests.remove(caller) {
                        self.fail(request, defeat, answers);
                    }
                }
            }
            (About::Status(_), Some(Inspecting::Status(reply))) => {
                let _ = reply.send(self.status_of(answers, now));
            }
            (About::Status(_), Some(Inspecting::Observer(observing))) => {
                let status = self.status_of(answers, now);
                self.observed(observing, status, now);
            }
            (About::Waiters(_, most), Some(Inspecting::Waiters(reply))) => drop(reply.send(most)),
            (About::Mark(_, _, marks), Some(Inspecting::Mark(reply))) => {
                let _ = reply.send(MarkVotes { votes: votes(names, answers), answers: marks });
            }
            _ => {}
        }
    }

    fn status_of(&self, answers: &[LastAnswer], now: Instant) -> Status {
        let mut nodes = votes(&self.nodes.names, answers).into_vec();
        for (master, node) in nodes.iter_mut().enumerate() {
            node.tracks = self.masters.links().tracks(master);
            self.annotate(master, node, now);
        }
        Status { set: self.masters.agreed_set(), ..Status::new(nodes) }
    }

    /// Adds to the answer of a master whether it votes.
    fn annotate(&self, master: usize, node: &mut NodeVote, now: Instant) {
        let misfit = self.masters.misfit(master);
        if !node.verdict.is_clear() || (misfit.is_none() && self.masters.votes(master)) {
            return;
        }
        let cause = misfit.unwrap_or_else(|| self.masters.cause(master, now));
        if let Cause::NotAdmitted(why) = cause {
            node.not_admitted = Some(*why);
        }
    }
}
