//! Answers that do not count: of masters that do not vote, or did not when they were asked.

use redlock_core::{Answer, Cause, Instant, Verdict, Vote};

use super::inspect::Asker;
use super::ticket::{InspectionId, LockId, Ticket};
use super::{Driver, Stage};

impl Driver {
    /// The answer of a master that does not vote, or did not when it was asked: it confirms and
    /// denies nothing. It says where there is something to release.
    pub(super) fn uncounted_vote(&mut self, vote: &Vote, now: Instant) {
        let why = self.masters.cause(vote.master, now);
        self.observer.counters.vote(vote.master, &Verdict::Unknown(why.clone()));
        self.say_vote(vote, now);
        let has_granted = matches!(vote.answer.verdict, Verdict::Granted);
        match Ticket::unpack(vote.ticket) {
            Ticket::Attempt(lock) => self.attempt_uncounted(lock, vote, why, now),
            Ticket::Ballot(lock, _) | Ticket::Score(lock) => {
                self.ballot_uncounted(lock, vote.master, now);
            }
            Ticket::Extension(lock, number) if has_granted => {
                self.extension_uncounted(lock, number, vote, why, now);
            }
            Ticket::Extension(lock, number) => self.extension_vote(lock, number, vote, now),
            Ticket::Readd(lock) if has_granted => self.readd_uncounted(lock, vote, why, now),
            Ticket::Readd(lock) => self.readd_vote(lock, vote, now),
            Ticket::Release(lock) => self.release_vote(lock, vote, now),
            Ticket::Inspection(id) => self.inspection_uncounted(id, vote, why, now),
            Ticket::Look(waiting, number) => self.look_vote(waiting, number, vote, now),
        }
    }

    fn attempt_uncounted(&mut self, id: LockId, vote: &Vote, why: Cause, now: Instant) {
        let (master, answer) = (vote.master, &vote.answer);
        let Some(lock) = self.locks.get_mut(id) else { return };
        match &mut lock.stage {
            Stage::Attempt { attempt, .. } => {
                let step = attempt.vote_uncounted(master, answer, why, now);
                self.attempt_counted(id, step, now);
            }
            Stage::Lease(tenure) => {
                tenure.lease.acquired_uncounted(master, answer, why, now);
                tenure.cell.write(tenure.lease.ledger(), master);
                if tenure.lease.ledger().pending().is_empty() {
                    tenure.cell.settle();
                }
            }
            Stage::Release { release, .. } => {
                release.acquired(master, answer);
                self.release_changed(id, now);
            }
            Stage::Changing => {}
        }
    }

    fn extension_uncounted(
        &mut self,
        id: LockId,
        number: u32,
        vote: &Vote,
        why: Cause,
        now: Instant,
    ) {
        let Some(tenure) = self.tenure(id) else { return };
        let lease = &mut tenure.lease;
        let step = lease.extended_uncounted(number, vote.master, &vote.answer, why, now);
        tenure.cell.write(tenure.lease.ledger(), vote.master);
        self.publish(id, now);
        if let Some(extended) = step.extended {
            self.answer_extension(id, number, extended);
        }
        self.readd(id, step.readd, now);
    }

    fn readd_uncounted(&mut self, id: LockId, vote: &Vote, why: Cause, now: Instant) {
        let Some(tenure) = self.tenure(id) else { return };
        tenure.lease.readded_uncounted(vote.master, &vote.answer, why, now);
        tenure.cell.write(tenure.lease.ledger(), vote.master);
        self.publish(id, now);
    }

    /// The answer of a master that does not vote. It says nothing of why a request has failed; a
    /// status shows it.
    fn inspection_uncounted(&mut self, id: InspectionId, vote: &Vote, why: Cause, now: Instant) {
        let Some(question) = self.inspections.get(id) else { return };
        match question.asker {
            Asker::Status(_) => self.inspection_vote(id, vote, now),
            Asker::Failure(..) | Asker::Waits(_) => {
                let mut vote = vote.clone();
                vote.answer = Answer::unknown(why);
                self.inspection_vote(id, &vote, now);
            }
        }
    }
}
