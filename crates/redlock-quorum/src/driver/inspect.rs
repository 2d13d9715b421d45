//! Inspections: what each master reports about a key.

use std::sync::Arc;
use std::time::Duration;

use redlock_core::{Cause, Instant, Op, Verdict, Vote};
use redlock_protocol::inspection::Inspection;
use redlock_protocol::marks::MarkAnswer;
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::token::attempt::Defeat;
use redlock_protocol::votes::answer::{Counts, Judged};
use redlock_protocol::votes::ledger::LastAnswer;

use super::Driver;
use super::command::{MarkReply, MarkRequest, MarkVotes, Request, StatusReply, WaitersReply};
use super::observe::LIVES_TOO_LONG;
use crate::error::AcquireError;
use crate::hold::votes;
use crate::status::Status;
use crate::votes::NodeVote;
use redlock_protocol::client::ids::{InspectionId, Ticket};
use redlock_protocol::client::line::Outgoing;
use redlock_protocol::client::timers::Due;
use redlock_protocol::client::view::View as _;

/// An inspection, and what it is for.
pub(super) struct Question {
    inspection: Inspection,
    op: Op,
    asked: MasterSet,
    node_timeout: Duration,
    pub(super) asker: Asker,
    /// When it was sent, while it counts as open in the line.
    opened: Option<Instant>,
}

pub(super) enum Asker {
    /// A caller wants to know what each master has.
    Status(StatusReply),
    /// A caller that wants the number of waiters: the largest number that a master has reported.
    Waiters(WaitersReply, u32),
    /// These requests for one key have failed for good: their error reports who holds it.
    Failure(Vec<Request>, Defeat),
    /// A caller reads or raises a mark: the answer of each master.
    Mark(MarkReply, Vec<MarkAnswer>),
}

impl Driver {
    pub(super) fn status(&mut self, key: Arc<[u8]>, node_timeout: Duration, reply: StatusReply) {
        let inspection = Inspection::new(self.masters.len());
        self.inspect(inspection, Op::inspect(key), node_timeout, Asker::Status(reply));
    }

    /// Queries the number of waiters in a queue. Contenders can meet at different masters.
    pub(super) fn count_waiters(
        &mut self,
        queue: Arc<[u8]>,
        node_timeout: Duration,
        reply: WaitersReply,
    ) {
        let (inspection, asker) = (Inspection::new(self.masters.len()), Asker::Waiters(reply, 0));
        self.inspect(inspection, Op::count_waiters(queue), node_timeout, asker);
    }

    /// Queries who holds the lock that `request` did not get. `answers` are the votes on its last
    /// attempt, if there was one.
    pub(super) fn explain(
        &mut self,
        request: Request,
        defeat: Defeat,
        answers: Vec<LastAnswer>,
    ) -> InspectionId {
        let inspection = Inspection::behind(self.masters.len(), answers);
        let (op, node_timeout) = (Op::inspect(request.key.clone()), request.timing.node_timeout);
        self.explained += 1;
        self.inspect(inspection, op, node_timeout, Asker::Failure(vec![request], defeat))
    }

    /// Adds the request to an inspection for which other requests wait already. Returns the request
    /// if that inspection is over.
    pub(super) fn share_explanation(
        &mut self,
        id: InspectionId,
        request: Request,
    ) -> Option<Request> {
        match self.inspections.get_mut(id).map(|question| &mut question.asker) {
            Some(Asker::Failure(requests, _)) => requests.push(request),
            _ => return Some(request),
        }
        self.explained += 1;
        None
    }

    fn inspect(
        &mut self,
        inspection: Inspection,
        op: Op,
        node_timeout: Duration,
        asker: Asker,
    ) -> InspectionId {
        let asked = MasterSet::all(self.masters.len());
        let question = Question { inspection, op, asked, node_timeout, asker, opened: None };
        let id = self.inspections.insert(question);
        self.line.push(Outgoing::Inspection(id));
        id
    }

    /// Reads a mark on masters, or raises it.
    pub(super) fn mark(&mut self, request: MarkRequest, reply: MarkReply) {
        let MarkRequest { key, node_timeout, raise, masters: asked } = request;
        let op = match raise {
            Some((mark, px)) => Op::raise_mark(key, mark, px),
            None => Op::read_mark(key),
        };
        let masters = self.masters.len();
        let inspection = Inspection::asking(masters, asked);
        let asker = Asker::Mark(reply, vec![MarkAnswer::default(); masters]);
        let question = Question { inspection, op, asked, node_timeout, asker, opened: None };
        let id = self.inspections.insert(question);
        self.line.push(Outgoing::Mark(id));
    }

    pub(super) fn send_inspection(&mut self, id: InspectionId, now: Instant) {
        let Some(question) = self.inspections.get_mut(id) else { return };
        question.opened = Some(now);
        self.line.open();
        self.timers.enter(now.saturating_add(question.node_timeout), Due::Inspection(id));
        let (op, asked) = (question.op.clone(), question.asked);
        self.send(&op, asked, Ticket::Inspection(id), now);
    }

    /// Handles the answer of a master to an inspection. The answer of a non-voting master does not
    /// explain why a request failed, but a status shows it.
    pub(super) fn inspection_vote(
        &mut self,
        id: InspectionId,
        vote: &Vote,
        counts: &Counts,
        now: Instant,
    ) {
        let Some(question) = self.inspections.get_mut(id) else { return };
        if let Verdict::Held { ttl: Some(ttl), .. } = vote.answer.verdict
            && ttl > self.settings.expiry_max(self.masters.max_ttl())
        {
            self.observer.weakness(vote.master, LIVES_TOO_LONG, now);
        }
        let latency = now.saturating_since(vote.sent_at);
        let counts = match &mut question.asker {
            Asker::Status(_) => &Counts::Yes,
            Asker::Waiters(_, most) => {
                let waiters = vote.answer.queued.map_or(0, |queued| queued.waiters);
                *most = waiters.max(*most);
                &Counts::Yes
            }
            Asker::Failure(..) => match self.masters.misfit(vote.master) {
                Some(cause) => &Counts::Not(cause),
                None => counts,
            },
            Asker::Mark(_, answers) => {
                let is_clear = counts.apply(&vote.answer.verdict).is_clear();
                let marked = vote.answer.marked.as_deref().cloned();
                answers[vote.master] = MarkAnswer { marked, counts: is_clear };
                counts
            }
        };
        let judged = Judged { answer: &vote.answer, counts };
        question.inspection.vote(vote.master, judged, latency);
        if question.inspection.is_answered() {
            self.line.close(&mut question.opened, now, question.node_timeout);
        }
        self.inspection_changed(id, now);
    }

    /// The late answer of a master to the attempt that an inspection explains.
    pub(super) fn late_attempt_vote(
        &mut self,
        id: InspectionId,
        master: usize,
        judged: Judged<'_>,
        latency: Duration,
    ) {
        if let Some(question) = self.inspections.get_mut(id) {
            question.inspection.attempt_vote(master, judged, latency);
        }
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

    pub(super) fn inspection_due(&mut self, id: InspectionId, now: Instant) {
        if let Some(question) = self.inspections.get_mut(id) {
            question.inspection.time_out();
            self.inspection_changed(id, now);
        }
    }

    /// Stops the inspections that explain errors, because the handle is closed.
    pub(super) fn dismiss_explanations(&mut self, now: Instant) {
        let explains = |question: &Question| matches!(question.asker, Asker::Failure(..));
        let found = self.inspections.iter().filter(|(_, question)| explains(question));
        let ids: Vec<InspectionId> = found.map(|(id, _)| id).collect();
        for id in ids {
            let Some(mut question) = self.inspections.remove(id) else { continue };
            self.line.close(&mut question.opened, now, question.node_timeout);
            let Asker::Failure(requests, _) = question.asker else { continue };
            self.explained -= requests.len();
            for request in requests {
                self.refuse(request, AcquireError::Shutdown, now);
            }
        }
    }

    fn inspection_changed(&mut self, id: InspectionId, now: Instant) {
        if !self.inspections.get(id).is_some_and(|question| question.inspection.is_over()) {
            return;
        }
        let Some(mut question) = self.inspections.remove(id) else { return };
        self.line.close(&mut question.opened, now, question.node_timeout);
        match question.asker {
            Asker::Status(reply) => {
                let answers = question.inspection.into_answers();
                let mut nodes = votes(&self.nodes.names, &answers).into_vec();
                for (master, node) in nodes.iter_mut().enumerate() {
                    node.tracks = self.masters.tracks(master);
                    self.annotate(master, node, now);
                }
                // A caller that has stopped waiting does not need to know.
                let set = self.masters.agreed_set();
                let _ = reply.send(Status { set, ..Status::new(nodes) });
            }
            Asker::Waiters(reply, most) => drop(reply.send(most)),
            Asker::Mark(reply, answers) => {
                let votes = votes(&self.nodes.names, &question.inspection.into_answers());
                let _ = reply.send(MarkVotes { votes, answers });
            }
            Asker::Failure(requests, defeat) => {
                let answers = question.inspection.into_explanation();
                self.explained -= requests.len();
                for request in requests {
                    self.fail(request, defeat, &answers);
                }
            }
        }
    }
}
