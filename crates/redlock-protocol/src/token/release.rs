//! `Release`: a token that is given back, until every master that may hold it has acknowledged.

use std::time::Duration;

use redlock_core::{Answer, Cause, Instant, Verdict};
use smallvec::SmallVec;

use crate::master_set::MasterSet;
use crate::quorum::quorum;
use crate::votes::answer::{Counts, Judged};
use crate::votes::ledger::{Answers, LastAnswer, Ledger, may_have_set};

/// The release of one token: what each master still has to do with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    copies: SmallVec<[Copy; 5]>,
    answers: Answers,
    /// The masters whose answer is waited for.
    pending: MasterSet,
    /// How long a key may stay from when a master was last asked to set or extend it.
    expiry: Duration,
    /// The TTL of the lock is not known: another process took it, and its key may stay longer.
    is_of_another: bool,
    /// Earlier answers have shown that a quorum does not hold the key any more.
    was_lost: bool,
    /// How many masters hold no key of ours, and how many have deleted one, or may have.
    absent: usize,
    deleted: usize,
    /// Masters that may have carried out a request to delete it whose answer never came.
    asked_before: MasterSet,
    outcome: Option<Released>,
}

/// Whether a master may hold the key, and when that key has expired there by itself; `None` while
/// the master may still have a request of ours in its buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Copy {
    /// Our key is not there.
    Gone,
    /// The key may be there, and the request to delete it waits for its turn.
    Waiting(Option<Instant>),
    /// The request is on its way.
    Sent(Option<Instant>),
    /// The master did not acknowledge it.
    Failed(Option<Instant>),
}

/// The answer that stands for a master that was not asked, because it cannot have our key.
const ABSENT: LastAnswer = LastAnswer { verdict: Verdict::NotOurs, latency: None };

/// How a release went, for the caller that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// A quorum held the key, and is free of it.
    Done,
    /// A quorum did not hold the key any more.
    NotOurs,
    /// Too few masters have acknowledged.
    Unconfirmed,
}

impl Release {
    /// The release of the token of `ledger`. Masters that have not answered some request for it,
    /// `unanswered`, may carry that request out at any time, and the key stays for `expiry` from
    /// then.
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

    /// Makes this the release of a lock that another process took: its TTL is not known.
    pub fn of_another(self) -> Self {
        Self { is_of_another: true, ..self }
    }

    /// Whether another process took the lock, so that its TTL is not known.
    pub fn is_of_another(&self) -> bool {
        self.is_of_another
    }

    /// The longest expiry that the masters allow a key. A key that another process has set may have
    /// that expiry.
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

    /// Whether some masters have not been asked at all.
    pub fn is_waiting(&self) -> bool {
        self.copies.iter().any(|copy| matches!(copy, Copy::Waiting(_)))
    }

    /// The requests go out now, to the masters that are returned.
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

    /// Asks `master` once more. Returns false if there is nothing to ask it for.
    pub fn send_again(&mut self, master: usize) -> bool {
        let copy = &mut self.copies[master];
        if let Copy::Failed(expires) = *copy {
            *copy = Copy::Sent(expires);
            return true;
        }
        false
    }

    /// The caller asks again, because its runtime went away with the answer: masters that did not
    /// acknowledge are waited for again. Says whether the requests to them have to be sent anew.
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

    /// The answer of `master`.
    pub fn vote(
        &mut self,
        master: usize,
        answer: &Answer,
        latency: Duration,
        now: Instant,
    ) -> Option<Released> {
        self.answers[master] = LastAnswer::of(Judged { answer, counts: &Counts::Yes }, latency);
        self.pending.remove(master);
        if let Copy::Sent(expires) = self.copies[master] {
            let is_gone = match &answer.verdict {
                Verdict::Granted | Verdict::NotOurs | Verdict::Held { .. } => true,
                // A master that answers has carried out all that came before: what it was given
                // then expires within one expiry from here, if it lets us release nothing.
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
                // A key that an earlier request of ours has deleted no longer exists for this one.
                let is_ours = matches!(answer.verdict, Verdict::NotOurs)
                    && self.asked_before.contains(master);
                let was_there = matches!(answer.verdict, Verdict::Granted) || is_ours;
                *if was_there { &mut self.deleted } else { &mut self.absent } += 1;
            }
        }
        self.conclude()
    }

    /// The late answer of `master` to the `SET` of the attempt: there is nothing to release where
    /// that was not carried out.
    pub fn acquired(&mut self, master: usize, answer: &Answer) -> Option<Released> {
        if self.copies[master] != Copy::Gone && !may_have_set(answer) {
            self.copies[master] = Copy::Gone;
            self.answers[master] = ABSENT;
            self.pending.remove(master);
            self.absent += 1;
        }
        self.conclude()
    }

    /// The node timeout has passed: the caller that waits gets an answer now.
    pub fn time_out(&mut self) -> Option<Released> {
        self.answers.iter_mut().for_each(LastAnswer::time_out);
        self.pending = MasterSet::EMPTY;
        self.conclude()
    }

    /// The masters whose answer is waited for.
    pub fn pending(&self) -> MasterSet {
        self.pending
    }

    /// The server process of `master` is gone, and with it all that was on its way there: a key
    /// that it wrote down expires within one expiry from here.
    pub fn process_ended(&mut self, master: usize, now: Instant) {
        let at = now.saturating_add(self.expiry);
        match &mut self.copies[master] {
            Copy::Waiting(expires) | Copy::Sent(expires) | Copy::Failed(expires) => {
                expires.get_or_insert(at);
            }
            Copy::Gone => {}
        }
    }

    /// Keys that have expired by themselves need no release any more.
    pub fn expire(&mut self, now: Instant) {
        for copy in &mut self.copies {
            if matches!(copy, Copy::Failed(Some(expires)) if *expires < now) {
                *copy = Copy::Gone;
            }
        }
    }

    /// `master` will not be asked any more: its key is left to expire.
    pub fn give_up(&mut self, master: usize) {
        self.copies[master] = Copy::Gone;
    }

    /// At once where a quorum held our key and is free of it; otherwise when every master has
    /// answered, because an error reports what each of them answered.
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

    /// Whether no more masters are without an answer than a quorum leaves, so that others need not
    /// wait for their turn.
    #[inline]
    pub fn is_answered(&self) -> bool {
        self.pending.len() <= self.answers.len() - quorum(self.answers.len())
    }

    /// The outcome, once it is known.
    #[inline]
    pub fn outcome(&self) -> Option<Released> {
        self.outcome
    }

    /// Whether no master has anything left to do.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.outcome.is_some() && self.copies.iter().all(|copy| *copy == Copy::Gone)
    }

    /// The masters that may still hold the key.
    pub fn unacknowledged(&self) -> MasterSet {
        let copies = self.copies.iter().enumerate();
        copies.filter(|(_, copy)| **copy != Copy::Gone).map(|(master, _)| master).collect()
    }

    /// Whether `master` was asked, did not acknowledge, and can be asked again.
    #[inline]
    pub fn has_failed(&self, master: usize) -> bool {
        matches!(self.copies[master], Copy::Failed(_))
    }

    /// How long the key may still stay on `master`; `None` for its whole expiry, counted from when
    /// the master runs again.
    pub fn left(&self, master: usize, now: Instant) -> Option<Duration> {
        match self.copies[master] {
            Copy::Waiting(expires) | Copy::Sent(expires) | Copy::Failed(expires) => {
                expires.map(|expires| expires.saturating_since(now))
            }
            Copy::Gone => Some(Duration::ZERO),
        }
    }

    /// How long the key stays from when a master was last asked to set or extend it.
    #[inline]
    pub fn expiry(&self) -> Duration {
        self.expiry
    }

    /// The last answer of each master.
    #[inline]
    pub fn answers(&self) -> &[LastAnswer] {
        &self.answers
    }
}

/// Whether a master that answers so has refused to do what it was asked, and will again.
pub fn is_denial(answer: &Answer) -> bool {
    matches!(&answer.verdict, Verdict::Unknown(Cause::ErrorReply(_) | Cause::Demoted(_)))
}

#[cfg(test)]
mod tests;
