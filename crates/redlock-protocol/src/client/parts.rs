//! Inputs of one part, and what follows from them in the others.

use redlock_core::Op;

use super::acquiring::Why;
use super::effects::Inspected;
use super::key::{Claim, Context as KeyContext, News as KeyNews, SILENT};
use super::locks::{Context as LockContext, Lock, Outcome};
use super::masters::{Context as MasterContext, News};
use super::questions::{About, Context as QuestionContext, Told};
use super::*;

impl Client {
    /// Passes an input to `Keys`.
    #[inline]
    pub(super) fn with_keys<T>(
        &mut self,
        at: &mut At<'_>,
        input: impl FnOnce(&mut Keys, &mut KeyContext<'_>) -> T,
    ) -> T {
        let output = input(&mut self.keys, &mut self.common.for_keys(&self.masters, at));
        while let Some(news) = self.keys.next_news() {
            self.follow_key(news, at);
        }
        output
    }

    /// Passes an input that concerns a token to `Keys`, and whether it is held.
    #[inline]
    pub(super) fn with_claim(
        &mut self,
        id: LockId,
        at: &mut At<'_>,
        input: impl FnOnce(&mut Keys, (&mut Claim, bool), &mut KeyContext<'_>),
    ) {
        let Some(lock) = self.locks.get_mut(id) else { return };
        let is_held = lock.is_lease();
        input(
            &mut self.keys,
            (&mut lock.claim, is_held),
            &mut self.common.for_keys(&self.masters, at),
        );
        while let Some(news) = self.keys.next_news() {
            self.follow_key(news, at);
        }
    }

    fn follow_key(&mut self, news: KeyNews, at: &mut At<'_>) {
        match news {
            KeyNews::Line(outgoing) => self.common.line.push(outgoing),
            KeyNews::Stands(caller) => self.start.stand_in_line(caller, &mut self.common),
            KeyNews::Send(master, op, ticket) => {
                self.common.send(op, MasterSet::from_iter([master]), ticket, &self.masters, at);
            }
            KeyNews::Explain(callers, waiting, shared) => {
                let (masters, common) = (&self.masters, &mut self.common);
                let last = self.questions.explain_together(callers, shared, masters, common);
                if let Some(explanation) = last {
                    self.keys.explained(waiting, explanation);
                }
            }
            KeyNews::Suspect(master, until) => self.masters.suspect(master, until),
            KeyNews::Polled => at.effects.count(Count::Poll),
            KeyNews::Watched => at.effects.count(Count::Watch),
            KeyNews::Cancelled(caller) => {
                at.effects.count(Count::Cancelled);
                at.effects.push(Effect::Forgotten(caller));
            }
            KeyNews::Silent(master) => at.effects.count_vote(master, &SILENT),
            KeyNews::Said(caller, what) => {
                self.common.trace(caller, What::Happens(what), at.effects);
            }
            KeyNews::SaidAt(waiting, master, what) => {
                if let Some(head) = self.keys.head(waiting) {
                    self.common.trace(head, What::HappensAt(master, what), at.effects);
                }
            }
        }
    }

    /// Passes an input to `Locks`.
    #[inline]
    pub(super) fn with_locks<T>(
        &mut self,
        at: &mut At<'_>,
        input: impl FnOnce(&mut Locks, &mut LockContext<'_>) -> T,
    ) -> T {
        let mut cx = self.common.for_locks(&mut self.masters, self.closing.is_some(), at);
        let output = input(&mut self.locks, &mut cx);
        while let Some(outcome) = self.locks.next_outcome() {
            self.follow_lock(outcome, at);
        }
        output
    }

    fn follow_lock(&mut self, outcome: Outcome, at: &mut At<'_>) {
        match outcome {
            Outcome::Won(id, won) => self.won(id, won, at),
            Outcome::Lost(id, loss) => self.lost(id, loss, at),
            Outcome::Ends(id) => self.lease_ends(id, at),
            Outcome::Left(id) => {
                self.with_claim(id, at, |keys, (claim, _), cx| keys.left(claim, id, cx));
                self.locks.remove_gone(id);
            }
        }
    }

    /// Passes an input to `Masters`.
    pub(super) fn with_masters(
        &mut self,
        at: &mut At<'_>,
        input: impl FnOnce(&mut Masters, &mut MasterContext<'_>),
    ) {
        let mut news = std::mem::take(&mut self.news);
        let mut cx = MasterContext { now: at.now, news: &mut news, moment: at.moment };
        input(&mut self.masters, &mut cx);
        for master in 0..self.masters.len() {
            if let Some(due) = self.masters.alarm(master) {
                self.common.timers.enter(due, Due::Master(master));
            }
        }
        news.drain(..).for_each(|news| self.follow_master(news, at));
        self.news = news;
    }

    fn follow_master(&mut self, news: News, at: &mut At<'_>) {
        let is_open = |lock: &Lock| lock.is_attempt() || lock.is_lease();
        match news {
            News::Ask(master, op, asker) => ask(master, *op, asker, at),
            News::Admitted(master, run) => {
                at.effects.push(Effect::Admitted(master, run.map(Box::new)));
            }
            News::Urgent(master, is_urgent) => {
                at.effects.push(Effect::Urgent(master, is_urgent));
            }
            News::ProcessEnded(master) => self.locks.process_ended(master, at.now),
            News::Disowned(master, why) => self.each_lock(is_open, at, |locks, id, cx| {
                locks.happens(id, Event::Disowned(master, why.clone()), cx);
            }),
            News::Suspected(master, why) => self.each_lock(is_open, at, |locks, id, cx| {
                locks.happens(id, Event::Suspected(master, why.clone()), cx);
            }),
            News::Unproven(master) => self.each_lock(is_open, at, |locks, id, cx| {
                locks.happens(id, Event::Unproven(master), cx);
            }),
            News::Proven(master) => self.each_lock(Lock::is_lease, at, |locks, id, cx| {
                locks.happens_if_taken(id, Event::Proven(master), cx);
            }),
            News::Voting(master) => self.each_lock(Lock::is_lease, at, |locks, id, cx| {
                locks.happens_if_taken(id, Event::Voting(master), cx);
            }),
            News::PausesOver => self.with_keys(at, Keys::pauses_over),
            News::Reached(master) => self.with_locks(at, |locks, cx| locks.reached(master, cx)),
            News::LostSight(master) => {
                at.effects.push(Effect::LostSight(master));
                self.with_keys(at, |keys, cx| keys.lost_sight(master, cx));
            }
            News::Up(master) => at.effects.say(Said::Up(master)),
            News::Down(master, cause, is_news) => {
                at.effects.say(Said::Down(master, cause, is_news));
            }
            News::NotCounting(master, cause) => {
                at.effects.say(Said::NotCounting(master, cause));
            }
            News::Counting(master) => at.effects.say(Said::Counting(master)),
            News::Weak(master, weakness) => at.effects.say(Said::Weak(master, weakness)),
            News::NoQueue(master, why) => at.effects.say(Said::NoQueue(master, why)),
            News::ListDoubt(warning) => at.effects.say(Said::ListDoubt(warning)),
            News::ListWarning(warning) => at.effects.push(Effect::ListWarning(warning)),
        }
    }

    /// Passes the same input to `Locks` for each of these locks.
    pub(super) fn each_lock(
        &mut self,
        is_so: fn(&Lock) -> bool,
        at: &mut At<'_>,
        input: impl Fn(&mut Locks, LockId, &mut LockContext<'_>),
    ) {
        for id in self.locks.ids(is_so) {
            self.with_locks(at, |locks, cx| input(locks, id, cx));
        }
    }

    /// Passes an input to `Questions`.
    pub(super) fn with_questions<T>(
        &mut self,
        at: &mut At<'_>,
        input: impl FnOnce(&mut Asking, &mut Masters, &mut QuestionContext<'_>) -> T,
    ) -> T {
        let mut news = Vec::new();
        let mut cx = QuestionContext { now: at.now, news: &mut news, moment: at.moment };
        let output = input(&mut self.questions, &mut self.masters, &mut cx);
        if let Some(due) = self.questions.all.alarm() {
            self.common.timers.enter(due, Due::Init);
        }
        for told in news {
            self.follow_question(told, at);
        }
        output
    }

    fn follow_question(&mut self, told: Told, at: &mut At<'_>) {
        match told {
            Told::Ask(master, op, asker) => ask(master, *op, asker, at),
            Told::Init(outcome) => {
                if let Some(reply) = self.questions.take_init() {
                    at.effects.push(Effect::Initialized(reply, outcome));
                }
            }
            Told::Report(number, rows) => {
                if let Some(reply) = self.questions.take_report(number) {
                    at.effects.push(Effect::Reported(reply, rows));
                }
            }
            Told::Inspected(id, about, answers) => {
                let asker = self.questions.take(id);
                if let About::Failure(_, callers, defeat) = *about {
                    for id in callers {
                        if let Some(caller) = self.common.callers.remove(id) {
                            self.fail(id, &caller, Why { defeat, answers: answers.clone() }, at);
                        }
                    }
                } else if let Some(asker) = asker {
                    if let Some(silent) = asker.silent(&answers) {
                        // It is avoided for a moment.
                        let until = self.common.suspected_until(silent, at.now);
                        self.masters.suspect(silent, until);
                    }
                    let inspected = Inspected::of(*about, answers, &self.masters, at.now);
                    at.effects.push(Effect::Inspected(asker.reply, inspected.into()));
                }
            }
            Told::Closed(opened, node_timeout) => {
                self.common.line.close(&mut Some(opened), at.now, node_timeout);
            }
        }
    }

    /// Traces the answer of a master.
    pub(super) fn trace_vote(&self, ticket: Ticket, vote: &Vote, at: &mut At<'_>) {
        let (to, id) = match ticket {
            Ticket::Attempt(id) => ("attempt", id),
            Ticket::Ballot(id, _) => ("ballot", id),
            Ticket::Score(id) => ("score", id),
            Ticket::Exit(id) => ("place given up", id),
            Ticket::Extension(id, _) => ("extension", id),
            Ticket::Readd(id) => ("re-add", id),
            Ticket::Release(id) => ("release", id),
            Ticket::Watch(waiting, _) | Ticket::Place(waiting, _) => {
                let what = What::HappensAt(vote.master, "vote on a watch");
                if let Some(head) = self.keys.head(waiting) {
                    self.common.trace(head, what, at.effects);
                }
                return;
            }
            // Its outcome is reported with the error that it explains.
            Ticket::Inspection(_) | Ticket::Admission(_) => return,
        };
        let latency = at.now.saturating_since(vote.sent_at);
        let what = || What::Vote(vote.master, to, vote.answer.verdict.clone(), latency);
        if let Some(lock) = self.locks.get(id) {
            lock.trace(what, at.effects);
        }
    }
}

/// Sends a request about admission to a master.
fn ask(master: usize, op: redlock_core::admission::AdmissionOp, asker: Asker, at: &mut At<'_>) {
    at.effects.push(Effect::Send {
        masters: MasterSet::from_iter([master]),
        op: Op::admission(op),
        ticket: Ticket::Admission(asker),
        at: at.now,
    });
}
