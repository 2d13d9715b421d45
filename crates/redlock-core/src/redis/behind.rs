//! The look behind an acquire, where the server does not push that its data is gone.
//!
//! A master may have failed over to a replica and back, or have been flushed, and its connection
//! goes on. A look before the acquire proves nothing. This one is sent in the same write, and the
//! vote is cast when it is read.

use redis::{Value, cmd};

use super::facts;
use super::handshake::info;
use super::namespace::Namespace;
use super::order::run_of;
use super::reply;
use crate::admission::Identity;
use crate::{Answer, Cause, Facts, Instant, NotAdmitted, Role, Verdict, VoteSlot, WhyNot};

/// What such a look is compared with: what was read last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    run_id: String,
    role: Role,
    identity: Option<Identity>,
    run: Option<Identity>,
}

/// An acquire that was answered, and what the look behind it has said so far.
pub(super) struct Behind {
    pub(super) sent_at: Instant,
    vote: Option<(VoteSlot, Answer)>,
    replication: Option<Value>,
    run: Option<Value>,
    /// Whether `run` is asked for. A score or a ballot that was accepted says as much.
    asks_run: bool,
}

/// A look as it is sent.
pub(super) struct Look {
    pub(super) replication: Vec<u8>,
    pub(super) run: Vec<u8>,
}

impl Known {
    /// None without a record: such a master does not vote, and a look would say nothing more.
    pub(super) fn of(facts: &Facts) -> Option<Self> {
        facts.record.as_ref().ok()?;
        let Facts { run_id, role, identity, .. } = facts;
        Some(Self { run_id: run_id.clone(), role: *role, identity: *identity, run: run_of(facts) })
    }

    /// A script tells the record, and nothing about the identity.
    pub(super) fn set_run(&mut self, run: Option<Identity>) {
        self.run = run;
    }

    pub(super) fn has_run(&self) -> bool {
        self.run.is_some()
    }

    /// What the ballot set is named after, where it was admitted as what it is.
    pub(super) fn admitted(&self) -> Option<Identity> {
        let present = self.identity?;
        self.run.filter(|run| run.covers(present))
    }

    /// Whether the look says the same.
    fn is_still(&self, replication: &Value, run: Option<&Value>) -> bool {
        let Ok(replication) = facts::text(replication) else { return false };
        run.is_none_or(|run| self.is_still_run(run))
            && self.role == facts::role_in(&replication)
            && self.identity == facts::identity(&self.run_id, &replication)
    }

    fn is_still_run(&self, run: &Value) -> bool {
        match run {
            Value::Nil => self.run.is_none(),
            Value::BulkString(run) => {
                self.run == str::from_utf8(run).ok().and_then(|run| run.parse().ok())
            }
            _ => false,
        }
    }
}

impl Look {
    pub(super) fn new(namespace: &Namespace) -> Self {
        let run = cmd("HGET").arg(&namespace.record).arg("run").clone();
        Self {
            replication: info("replication").get_packed_command(),
            run: run.get_packed_command(),
        }
    }
}

impl Behind {
    pub(super) fn new(sent_at: Instant, asks_run: bool) -> Self {
        Self { sent_at, vote: None, replication: None, run: None, asks_run }
    }

    /// The answer to the acquire itself.
    pub(super) fn hold(&mut self, slot: VoteSlot, answer: Answer) {
        self.vote = Some((slot, answer));
    }

    /// Takes the next reply; whether it was the last one.
    pub(super) fn take(&mut self, reply: Value) -> bool {
        if self.replication.is_some() {
            self.run = Some(reply);
            return true;
        }
        self.replication = Some(reply);
        !self.asks_run
    }

    /// The vote, and whether the look has found a change. None where the acquire itself was not
    /// answered, which is out of order.
    pub(super) fn judge(self, known: Option<&Known>) -> Option<(VoteSlot, Answer, bool)> {
        let (slot, answer) = self.vote?;
        let (replication, run) = (self.replication?, self.run.as_ref());
        let denied = [Some(&replication), run].into_iter().flatten().find_map(denied);
        let is_still = |known: &Known| known.is_still(&replication, run);
        let is_changed = denied.is_none() && !known.is_some_and(is_still);
        let why = denied.or_else(|| is_changed.then(|| NotAdmitted::new(WhyNot::Checked)));
        let answer = match why {
            Some(why) if answer.verdict.is_clear() => uncounted(&answer, why),
            _ => answer,
        };
        Some((slot, answer, is_changed))
    }
}

/// What is left of a clear answer of a master that may have changed.
fn uncounted(answer: &Answer, why: NotAdmitted) -> Answer {
    let key_set = matches!(answer.verdict, Verdict::Granted | Verdict::BallotRefused);
    Answer { key_set, ..Answer::unknown(Cause::NotAdmitted(why.into())) }
}

/// Why the server does not answer such a look.
fn denied(reply: &Value) -> Option<NotAdmitted> {
    let Value::ServerError(error) = reply else { return None };
    let hindrance = Some(reply::message(error));
    Some(NotAdmitted { hindrance, ..NotAdmitted::new(WhyNot::Denied) })
}
