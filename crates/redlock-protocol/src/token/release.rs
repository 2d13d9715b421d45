//! `Release`: a token being released, until every master that may hold it has acknowledged. See
//! rules R1 to R4 of `docs/PROTOCOL.md`.

use std::time::Duration;

use redlock_core::{Answer, Cause, Instant, Verdict};
use smallvec::SmallVec;

use crate::master_set::MasterSet;
use crate::quorum::quorum;
use crate::votes::answer::{Counts, Judged};
use crate::votes::last_answer::{Answers, LastAnswer};
use crate::votes::ledger::{Ledger, may_have_set};

/// The release of one token, and what each master still has to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    copies: SmallVec<[Copy; 5]>,
    answers: Answers,
    /// The masters whose answer is missing.
    pending: MasterSet,
    /// How long a key may stay after the last request that set or extended it on a master.
    expiry: Duration,
    /// Another process took the lock, so its TTL is unknown and its key may stay longer.
    is_of_another: bool,
    /// Earlier answers have shown that a quorum no longer holds the key.
    was_lost: bool,
    /// How many masters hold no key of ours, and how many have deleted one or may have.
    absent: usize,
    deleted: usize,
    /// Masters that may have executed a delete request whose answer never came.
    asked_before: MasterSet,
    outcome: Option<Released>,
}

/// Whether a master may hold the key, and when that key has expired there. `None` while the master
/// may still have a request of ours buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Copy {
    /// Our key is not there.
    Gone,
    /// The key may be there, and the delete request waits for its turn.
    Waiting(Option<Instant>),
    /// The request is on its way.
    Sent(Option<Instant>),
    /// The master did not acknowledge the request.
    Failed(Option<Instant>),
}

/// The answer reported for a master that was not queried because it cannot have our key.
const ABSENT: LastAnswer = LastAnswer { verdict: Verdict::NotOurs, latency: None };

/// The outcome of a release, for the caller that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// A quorum held the key and has deleted it.
    Done,
    /// A quorum no longer held the key.
    NotOurs,
    /// Too few masters acknowledged.
    Unconfirmed,
}

impl Release {
    /// Starts the release of the token of `ledger`. Masters in `unanswered` have not answered some
    /// request for it. They may execute that request at any time, and the key then stays for
    /// `expiry`.
    #[inline]
    pub fn new(
        ledger: Ledger,
        unanswered: MasterSet,
        expiry: Duration,
        was_lost: bool,
        now: Instant,
    ) -> Self {
        let masters = ledger.masters();
        let may_hold = ledger.may_hold();
        let unsettled = ledger.unsettled().union(unanswered);
        let expires = now.saturating_add(expiry);
        let mut copies = SmallVec::from_elem(Copy::Gone, masters);
        for master in may_hold.iter() {
            copies[master] = Copy::Waiting((!unsettled.contains(master)).then_some(expires));
        }
        let mut answers = ledger.into_answers();
        for (master, answer) in answers.iter_mut().enumerate() {
            *answer = match may_hold.contains(master) {
                false => ABSENT,
                true => LastAnswer::PENDING,
            };
        }
        Self {
            copies,
            answers,
            pending: may_hold,
            expiry,
            is_of_another: false,
            was_lost,
            absent: masters - may_hold.len(),
            deleted: 0,
            asked_before: MasterSet::EMPTY,
            outcome: None,
        }
    }

    /// Makes this the release of a lock that another process took, whose TTL is unknown.
    pub fn of_another(self) -> Self {
        Self { is_of_another: true, ..self }
    }

    /// Returns `true` if another process took the lock, so that its TTL is unknown.
    pub fn is_of_another(&self) -> bool {
        self.is_of_another
    }

    /// Sets the longest expiry that masters allow for a key. A key of another process may have it.
    pub fn masters_allow(&mut self, expiry: Duration) {
        if !self.is_of_another || expiry <= self.expiry {
            return;
        }
        let more = expiry - self.expiry;
        self.expiry = expiry;
        for copy in &mut self.copies {
            if let Copy::Waiting(Some(expires))
            | Copy::Sent(Some(expires))
            | Copy::Failed(Some(expires)) = copy
            {
                *expires = expires.saturating_add(more);
            }
        }
    }

    /// Returns `true` if some masters have not received a request yet.
    pub fn is_waiting(&self) -> bool {
        self.copies.iter().any(|copy| matches!(copy, Copy::Waiting(_)))
    }

    /// Returns the masters to which the requests are sent now.
    #[inline]
    pub fn send(&mut self) -> MasterSet {
        let mut masters = MasterSet::EMPTY;
        for (master, copy) in self.copies.iter_mut().enumerate() {
            if let Copy::Waiting(expires) = *copy {
                *copy = Copy::Sent(expires);
                masters.insert(master);
            }
        }
        masters
    }

    /// Repeats the request to `master`. Returns `false` if there is nothing to request.
    pub fn send_again(&mut self, master: usize) -> bool {
        let copy = &mut self.copies[master];
        if let Copy::Failed(expires) = *copy {
            *copy = Copy::Sent(expires);
            return true;
        }
        false
    }

    /// Waits again for masters that did not acknowledge, because the caller's runtime was dropped
    /// with the answer. Returns `true` if the requests to them must be sent again.
    pub fn reopen(&mut self) -> bool {
        let was_waiting = self.is_waiting();
        for (master, (copy, answer)) in self.copies.iter_mut().zip(&mut self.answers).enumerate() {
            if let Copy::Failed(expires) = *copy {
                (*copy, *answer) = (Copy::Waiting(expires), LastAnswer::PENDING);
                self.pending.insert(master);
                self.outcome = None;
            }
        }
        self.is_waiting() && !was_waiting
    }

    /// Records the answer of `master`. A deletion is valid whether or not the master votes. If the
    /// lock is of another process and the list does not fit the set of the master, the answer
    /// confirms nothing: the lock may be on masters that the list lacks.
    pub fn vote(
        &mut self,
        master: usize,
        judged: Judged<'_>,
        latency: Duration,
        now: Instant,
    ) -> Option<Released> {
        let answer = judged.answer;
        let is_elsewhere = self.is_of_another && judged.is_of_wrong_list();
        let counts = if is_elsewhere { judged.counts } else { &Counts::Yes };
        self.answers[master] = LastAnswer::of(Judged { answer, counts }, latency);
        self.pending.remove(master);
        if let Copy::Sent(expires) = self.copies[master] {
            let is_gone = match &answer.verdict {
                Verdict::Granted | Verdict::NotOurs | Verdict::Held { .. } => true,
                // A master that answers has executed all earlier requests. If it refuses the
                // release, the key expires within one expiry from now.
                Verdict::Unknown(cause) if cause.is_error_reply() => {
                    let expires = expires.unwrap_or_else(|| now.saturating_add(self.expiry));
                    self.copies[master] = Copy::Failed(Some(expires));
                    now > expires
                }
                _ => {
                    self.copies[master] = Copy::Failed(expires);
                    if answer.sent {
                        self.asked_before.insert(master);
                    }
                    false
                }
            };
            if is_gone {
                self.copies[master] = Copy::Gone;
            }
            if is_gone && !is_elsewhere {
                // A key that an earlier request of ours has deleted no longer exists for this one.
                let is_ours = matches!(answer.verdict, Verdict::NotOurs)
                    && self.asked_before.contains(master);
                let was_there = matches!(answer.verdict, Verdict::Granted) || is_ours;
                *if was_there { &mut self.deleted } else { &mut self.absent } += 1;
            }
        }
        self.conclude()
    }

    /// Records the late answer of `master` to the `SET` of the attempt. If the master did not
    /// execute it, there is nothing to release.
    pub fn acquired(&mut self, master: usize, answer: &Answer) -> Option<Released> {
        if self.copies[master] != Copy::Gone && !may_have_set(answer) {
            self.copies[master] = Copy::Gone;
            self.answers[master] = ABSENT;
            self.pending.remove(master);
            self.absent += 1;
        }
        self.conclude()
    }

    /// Answers the waiting caller, because the node timeout has passed.
    pub fn time_out(&mut self) -> Option<Released> {
        self.answers.iter_mut().for_each(LastAnswer::time_out);
        self.pending = MasterSet::EMPTY;
        self.conclude()
    }

    /// Returns the masters whose answer is missing.
    pub fn pending(&self) -> MasterSet {
        self.pending
    }

    /// Records that the server process of `master` has exited, with all requests on their way to
    /// it. A key that it wrote to disk expires within one expiry from now.
    pub fn process_ended(&mut self, master: usize, now: Instant) {
        let at = now.saturating_add(self.expiry);
        match &mut self.copies[master] {
            Copy::Waiting(expires) | Copy::Sent(expires) | Copy::Failed(expires) => {
                expires.get_or_insert(at);
            }
            Copy::Gone => {}
        }
    }

    /// Drops keys that have expired and need no release.
    pub fn expire(&mut self, now: Instant) {
        for copy in &mut self.copies {
            if matches!(copy, Copy::Failed(Some(expires)) if *expires < now) {
                *copy = Copy::Gone;
            }
        }
    }

    /// Sends no more requests to `master`: its key is left to expire.
    pub fn give_up(&mut self, master: usize) {
        self.copies[master] = Copy::Gone;
    }

    /// Decides immediately if a quorum held our key and has deleted it. Otherwise decides when
    /// every master has answered, because an error reports all answers.
    fn conclude(&mut self) -> Option<Released> {
        let masters = self.answers.len();
        let quorum = quorum(masters);
        let is_open = !self.pending.is_empty();
        let is_sure = self.deleted >= quorum && !self.was_lost;
        if self.outcome.is_some() || is_open && !is_sure {
            return None;
        }
        self.outcome = Some(if self.absent + self.deleted < quorum {
            Released::Unconfirmed
        } else if self.was_lost || self.absent > masters - quorum {
            Released::NotOurs
        } else {
            Released::Done
        });
        self.outcome
    }

    /// Returns `true` if a quorum has answered, so that other requests need not wait for their
    /// turn.
    #[inline]
    pub fn is_answered(&self) -> bool {
        self.pending.len() <= self.answers.len() - quorum(self.answers.len())
    }

    /// Returns the outcome once it is known.
    #[inline]
    pub fn outcome(&self) -> Option<Released> {
        self.outcome
    }

    /// Returns `true` if no master has anything left to do.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.outcome.is_some() && self.copies.iter().all(|copy| *copy == Copy::Gone)
    }

    /// Returns the masters that may still hold the key.
    pub fn unacknowledged(&self) -> MasterSet {
        let copies = self.copies.iter().enumerate();
        copies.filter(|(_, copy)| **copy != Copy::Gone).map(|(master, _)| master).collect()
    }

    /// Returns `true` if `master` received a request, did not acknowledge it, and can be queried
    /// again.
    #[inline]
    pub fn has_failed(&self, master: usize) -> bool {
        matches!(self.copies[master], Copy::Failed(_))
    }

    /// Returns how long the key may still stay on `master`. `None` means its whole expiry from the
    /// moment the master resumes.
    pub fn left(&self, master: usize, now: Instant) -> Option<Duration> {
        match self.copies[master] {
            Copy::Waiting(expires) | Copy::Sent(expires) | Copy::Failed(expires) => {
                expires.map(|expires| expires.saturating_since(now))
            }
            Copy::Gone => Some(Duration::ZERO),
        }
    }

    /// Returns how long the key stays after the last request that set or extended it on a master.
    #[inline]
    pub fn expiry(&self) -> Duration {
        self.expiry
    }

    /// Returns the last answer of each master.
    #[inline]
    pub fn answers(&self) -> &[LastAnswer] {
        &self.answers
    }
}

/// Returns `true` if this answer means that the master refused the request and will refuse it
/// again.
pub fn is_denial(answer: &Answer) -> bool {
    matches!(&answer.verdict, Verdict::Unknown(Cause::ErrorReply(_) | Cause::Demoted(_)))
}

#[cfg(test)]
mod tests;
