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
use crate::{Answer, Cause, Facts, Instant, NotAdmitted, Role, VoteSlot, WhyNot};

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

    /// Whether the look says the same.
    fn is_still(&self, replication: &Value, run: &Value) -> bool {
        let Ok(replication) = facts::text(replication) else { return false };
        let run = match run {
            Value::Nil => None,
            Value::BulkString(run) => str::from_utf8(run).ok().and_then(|run| run.parse().ok()),
            _ => return false,
        };
        self.run == run
            && self.role == facts::role_in(&replication)
            && self.identity == facts::identity(&self.run_id, &replication)
    }
}

/// The look as it is sent: two requests.
pub(super) fn packed(namespace: &Namespace) -> Vec<u8> {
    let run = cmd("HGET").arg(&namespace.record).arg("run").clone();
    [info("replication").get_packed_command(), run.get_packed_command()].concat()
}

impl Behind {
    pub(super) fn new(sent_at: Instant) -> Self {
        Self { sent_at, vote: None, replication: None }
    }

    /// The answer to the acquire itself.
    pub(super) fn hold(&mut self, slot: VoteSlot, answer: Answer) {
        self.vote = Some((slot, answer));
    }

    /// Takes the reply to the first request; the one to the second comes back.
    pub(super) fn first(&mut self, reply: Value) -> Option<Value> {
        if self.replication.is_some() {
            return Some(reply);
        }
        self.replication = Some(reply);
        None
    }

    /// The vote, and whether the look has found a change. None where the acquire itself was not
    /// answered, which is out of order.
    pub(super) fn judge(
        self,
        run: &Value,
        known: Option<&Known>,
    ) -> Option<(VoteSlot, Answer, bool)> {
        let (slot, answer) = self.vote?;
        let replication = self.replication?;
        let denied = [&replication, run].into_iter().find_map(denied);
        let is_changed = denied.is_none() && known.is_none_or(|it| !it.is_still(&replication, run));
        let why = denied.or_else(|| is_changed.then(|| NotAdmitted::new(WhyNot::Checked)));
        let answer = match why {
            Some(why) if answer.verdict.is_clear() => {
                Answer::unknown(Cause::NotAdmitted(why.into()))
            }
            _ => answer,
        };
        Some((slot, answer, is_changed))
    }
}

/// Why the server does not answer such a look.
fn denied(reply: &Value) -> Option<NotAdmitted> {
    let Value::ServerError(error) = reply else { return None };
    let hindrance = Some(reply::message(error));
    Some(NotAdmitted { hindrance, ..NotAdmitted::new(WhyNot::Denied) })
}
