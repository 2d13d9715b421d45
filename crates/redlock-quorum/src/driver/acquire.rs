//! Requests: from the caller to its turn, or to an error.

mod attempt;
mod ballots;
mod end;

use std::time::Duration;

use redlock_core::{Cause, Instant};
use redlock_protocol::inspection::is_contended;
use redlock_protocol::token::attempt::Defeat;
use redlock_protocol::votes::ledger::LastAnswer;

use super::Driver;
use super::command::Request;
use super::hold::held_lock::HeldLock;
use crate::error::AcquireError;
use crate::hold::votes;
use crate::settings::InvalidRequest;
use redlock_protocol::client::ids::RequestId;
use redlock_protocol::client::line::Outgoing;
use redlock_protocol::client::masters::FRESH_FOR;
use redlock_protocol::client::timers::Due;

/// How long requests wait for connections that broke and are being made again.
const REVIVAL: Duration = Duration::from_millis(50);

/// Whether requests go out yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// No runtime drives the masters.
    Parked,
    /// The first connections are being made, since then.
    Connecting(Instant),
    /// A quorum is connected, and the others have a little longer.
    Lingering,
    /// Masters that are not connected now answer *unknown*.
    Done,
}

impl Driver {
    /// Opens the links, and continues the work that the previous runtime left.
    pub(super) fn connect(&mut self) {
        let now = self.now();
        self.start = Start::Connecting(now);
        let until = now.saturating_add(self.settings.connect_timeout);
        self.timers.enter(until, Due::Start);
        self.timers.enter(now.saturating_add(FRESH_FOR), Due::Fresh);
        self.masters.connect(until);
        self.nodes.connect();
        self.resume_releases(now);
        if let Some(closing) = &self.closing {
            // The runtime before has left the handle half closed.
            self.timers.enter(closing.until(), Due::Close);
        }
        self.consider_start();
        self.settle();
    }

    /// Requests go out once every master is connected or has failed to connect. They do not wait
    /// for the last one, though: once a quorum is connected, the others have as long again as that
    /// took.
    pub(super) fn consider_start(&mut self) {
        /// The least time for the others: connections made at the same time end at the same time.
        const LINGER_MIN: Duration = Duration::from_millis(10);
        if matches!(self.start, Start::Done | Start::Parked) {
            return;
        }
        if !self.masters.links().is_connecting() {
            self.started();
        } else if let Start::Connecting(since) = self.start
            && self.masters.links().has_quorum()
        {
            let now = self.now();
            let linger = now.saturating_since(since).max(LINGER_MIN);
            self.start = Start::Lingering;
            self.timers.enter(now.saturating_add(linger), Due::Start);
        }
    }

    /// The first connections are made, or their time is over: what waited for them is sent.
    pub(super) fn started(&mut self) {
        if self.start != Start::Done {
            self.start = Start::Done;
            let now = self.now();
            self.resume_leases(now);
            for command in std::mem::take(&mut self.early) {
                self.command(command, now);
                self.settle();
            }
        }
    }

    /// A caller wants a lock.
    pub(super) fn request(&mut self, request: Request, now: Instant) {
        self.observer.counters.requests.add(1);
        if self.closing.is_some() {
            self.refuse(request, AcquireError::Shutdown, now);
        } else if self.line.is_full() {
            let why = format!(
                "{} requests wait for their turn",
                redlock_protocol::client::line::WAITING_MAX
            );
            self.refuse_unsent(request, Cause::NotConnected(why.into()));
        } else {
            let stands_alone = request.is_try() || request.resume.is_some();
            self.ask(now);
            self.await_steps(now);
            let request = self.requests.insert_with_id(|id| {
                request.reply.enter(id);
                request
            });
            self.observer.say_request(&self.requests, request, "request");
            if stands_alone {
                self.stand_in_line(request);
            } else {
                self.with_keys(now, |keys, cx| keys.ask(request, cx));
            }
        }
    }

    /// Limits how long a request waits in line: its own wait, and at least for a moment.
    fn limit_standing(&mut self, id: RequestId) {
        if self.start == Start::Done && !self.line.is_long() {
            return;
        }
        if let Some(until) = self.requests.get(id).and_then(|request| request.until) {
            // Time for the first connections, and for the last attempt at the end of the wait.
            let grace = self.settings.connect_timeout.saturating_mul(2);
            self.timers.enter(until.saturating_add(grace), Due::Unsent(id));
        }
    }

    pub(super) fn unsent_due(&mut self, id: RequestId) {
        // Requests with an attempt under way end by themselves.
        let is_attempted = self.requests.get(id).is_none_or(|request| request.is_attempted);
        if !is_attempted && let Some(request) = self.requests.remove(id) {
            let now = self.now();
            self.with_keys(now, |keys, cx| keys.answered(id, &request.key, cx));
            let why = "its turn did not come in time";
            self.refuse_unsent(request, Cause::NotConnected(why.into()));
        }
    }

    /// Fails a request that was sent to no master, for this reason.
    pub(super) fn refuse_unsent(&self, request: Request, cause: Cause) {
        let answers = vec![LastAnswer::unknown(cause); self.masters.len()];
        self.fail(request, Defeat::Outvoted, &answers);
    }

    pub(super) fn stand_in_line(&mut self, id: RequestId) {
        if self.requests.contains(id) {
            self.line.push(Outgoing::Attempt(id));
            self.limit_standing(id);
        }
    }

    /// Sends the requests in the line, as far as there is room.
    pub(super) fn advance_line(&mut self) {
        if !self.may_send() {
            return;
        }
        // The clock is read before the first byte can leave, and once for all: none leaves before
        // the links are polled.
        let now = self.now();
        while let Some(outgoing) = self.line.pop() {
            match outgoing {
                Outgoing::Attempt(request) => self.attempt(request, now),
                Outgoing::Release(lock) => self.send_release(lock, now),
                Outgoing::Place(id) => self.with_keys(now, |keys, cx| keys.ask_for_place(id, cx)),
                Outgoing::Inspection(inspection) | Outgoing::Mark(inspection) => {
                    self.send_inspection(inspection, now);
                }
            }
            self.settle();
        }
    }

    /// Returns `true` if entries of the line can be sent. Nothing is sent before the first
    /// connections exist, nor for a moment after a quorum of connections broke and is being remade.
    /// Attempts wait for masters that may vote soon.
    pub(super) fn may_send(&mut self) -> bool {
        if self.start != Start::Done || self.line.is_empty() {
            return false;
        }
        let holds = self.masters.awaits_admission(|| self.clock.now());
        self.line.hold(holds);
        if !self.line.can_advance() {
            return false;
        }
        let Some(since) = self.masters.links().reviving_since() else { return true };
        let until = since.saturating_add(REVIVAL);
        let is_over = self.now() >= until;
        if !is_over {
            self.timers.enter(until, Due::Wake);
        }
        is_over
    }

    /// The TTL is longer than the masters allow.
    pub(super) fn refuse_invalid(&mut self, id: RequestId, invalid: InvalidRequest) {
        let Some(request) = self.requests.remove(id) else { return };
        let now = self.now();
        self.with_keys(now, |keys, cx| keys.answered(id, &request.key, cx));
        self.refuse(request, invalid.into(), now);
    }

    /// Answers with an error that no masters have a part in.
    pub(super) fn refuse(&self, request: Request, error: AcquireError, now: Instant) {
        self.observer.refused(&request, now);
        answer(request, Err(error));
    }

    /// Answers the caller with why there is no lock.
    pub(super) fn fail(&self, request: Request, defeat: Defeat, answers: &[LastAnswer]) {
        self.observer.failed(&request, defeat, self.now());
        let resource = request.resource.clone();
        let votes = votes(&self.nodes.names, answers);
        let votes = match self.is_held_here(&request.key, votes.holder()) {
            true => votes.of_this_process(),
            false => votes,
        };
        let error = if defeat == Defeat::TooLate {
            AcquireError::TooLate { resource, votes }
        } else if is_contended(answers) {
            AcquireError::Held { resource, votes }
        } else {
            AcquireError::NoQuorum { resource, votes }
        };
        answer(request, Err(error));
    }

    /// Returns `true` if a caller of this handle holds the key, and masters name no other holder.
    fn is_held_here(&self, key: &[u8], holder: Option<&str>) -> bool {
        let lock = self.keys.lease(key).and_then(|lock| self.locks.get(lock));
        lock.is_some_and(|lock| {
            lock.is_held() && holder.is_none_or(|holder| holder == lock.claim.token.as_str())
        })
    }
}

/// A caller that has stopped waiting does not need to know.
pub(super) fn answer(request: Request, outcome: Result<HeldLock, AcquireError>) {
    let _ = request.reply.send(outcome);
}
