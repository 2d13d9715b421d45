//! Handles each event, stage by stage.

use redlock_core::{Ballot, Instant};

use super::*;

impl Lifecycle {
    /// Handles an event and returns what the driver must do.
    pub fn on(&mut self, event: Event<'_>, now: Instant) -> Step {
        if let Event::Answered(answered) = event {
            return self.answered(answered, now);
        }
        match &mut self.stage {
            Stage::Attempt(_) => self.on_attempt(event, now),
            Stage::Lease(_) => self.on_lease(event, now),
            Stage::Release(release) => on_release(release, event, now),
            Stage::Over => Step::Wait,
        }
    }

    /// Handles an answer of a master, in time or late. Nearly all events are of this kind.
    #[inline]
    pub fn answered(&mut self, answered: Answered<'_>, now: Instant) -> Step {
        match &mut self.stage {
            Stage::Attempt(attempt) => match answered.by_attempt(attempt, now) {
                attempt::Step::Wait => Step::Wait,
                step => self.follow(step, now),
            },
            Stage::Lease(lease) => Step::Hold(answered.by_lease(lease, now)),
            Stage::Release(release) => {
                let decided = answered.by_release(release, now);
                after_release(release, decided)
            }
            Stage::Over => Step::Wait,
        }
    }

    fn on_attempt(&mut self, event: Event<'_>, now: Instant) -> Step {
        let Stage::Attempt(attempt) = &mut self.stage else { return Step::Wait };
        let step = match event {
            Event::OnlyCopies(whys) => attempt.only_copies(whys, now),
            Event::AttemptTimedOut => attempt.time_out(now),
            Event::GraceEnded => attempt.end_grace(now),
            Event::BallotsEnded => attempt.end_ballots(now),
            Event::Disowned(master, why) | Event::Suspected(master, why) => {
                attempt.disown(master, why, now)
            }
            Event::Refusing(masters) => {
                attempt.set_refusing(masters);
                attempt::Step::Wait
            }
            Event::Drawn(Some(ballot)) => return propose(attempt, Some(ballot)),
            Event::Drawn(None) => attempt::Step::Lost(Defeat::BallotRefused),
            Event::TakeAgain => return take_again(attempt),
            Event::Cancelled => return self.abandon(now),
            _ => attempt::Step::Wait,
        };
        self.follow(step, now)
    }

    /// Turns a step of the attempt into a step of the token.
    fn follow(&mut self, step: attempt::Step, now: Instant) -> Step {
        let Stage::Attempt(attempt) = &mut self.stage else { return Step::Wait };
        match step {
            attempt::Step::Wait => Step::Wait,
            attempt::Step::AskOthers if !attempt.is_fenced() => propose(attempt, None),
            attempt::Step::AskOthers | attempt::Step::Propose => {
                Step::NeedBallot { proposed: attempt.ballots() }
            }
            attempt::Step::Join(masters) => match attempt.join(masters) {
                Some((number, ballot)) => Step::SendBallot { number, ballot, masters },
                None => Step::Wait,
            },
            attempt::Step::TakeAgain => Step::TakeAgain,
            attempt::Step::AwaitCopies => Step::AwaitCopies(attempt.outcome().fan_out()),
            attempt::Step::Won => self.win(now),
            attempt::Step::Lost(defeat) => self.lose(defeat, now),
        }
    }

    /// Turns the attempt into a lease.
    fn win(&mut self, now: Instant) -> Step {
        let Some(attempt) = self.take_attempt() else { return Step::Wait };
        let fan_out = attempt.outcome().fan_out();
        let lease = attempt.into_lease(now);
        let proof = lease.proof();
        self.stage = Stage::Lease(lease);
        Step::Won(Won { proof, fan_out })
    }

    fn lose(&mut self, defeat: Defeat, now: Instant) -> Step {
        let Stage::Attempt(attempt) = &self.stage else { return Step::Wait };
        let outcome = attempt.outcome();
        let loss = Loss {
            defeat,
            refusal: outcome.refusal(defeat),
            answers: attempt.answers().to_vec(),
            fan_out: outcome.is_refused().then(|| outcome.fan_out()),
            silent_first: outcome.silent_first(),
            is_let_in: outcome.is_let_in(),
            is_without_quorum: outcome.is_without_quorum(),
            // If masters have granted the key, no other client holds it.
            is_explicable: defeat == Defeat::Outvoted
                && !outcome.is_unanswered()
                && !self.is_resumed,
        };
        self.abandon(now);
        Step::Lost(loss)
    }

    /// Releases an attempt that was not won if its key may be somewhere. A lease that was only to
    /// be resumed is left to its holder.
    fn abandon(&mut self, now: Instant) -> Step {
        let Some(attempt) = self.take_attempt() else { return Step::Wait };
        let (expiry, ledger) = (attempt.timing().expiry(), attempt.into_ledger());
        // If every queried master has refused, there is nothing to release.
        if self.is_resumed || ledger.may_hold().is_empty() {
            return Step::Gone;
        }
        let unanswered = ledger.pending();
        self.stage = Stage::Release(Release::new(ledger, unanswered, expiry, false, now));
        Step::Release
    }

    fn take_attempt(&mut self) -> Option<Attempt> {
        // Checked before the move, because each move of a stage copies hundreds of bytes.
        if !matches!(self.stage, Stage::Attempt(_)) {
            return None;
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Attempt(attempt) => Some(attempt),
            _ => None,
        }
    }

    fn on_lease(&mut self, event: Event<'_>, now: Instant) -> Step {
        match event {
            Event::HandOn(options) => self.hand_on(options, now),
            Event::Returned { was_lost } => self.give_back(was_lost, now),
            Event::Untaken if !self.is_resumed => self.give_back(false, now),
            Event::Untaken | Event::GivenAway => {
                self.stage = Stage::Over;
                Step::Gone
            }
            event => match &mut self.stage {
                Stage::Lease(lease) => Step::Hold(hold(lease, event, now)),
                _ => Step::Wait,
            },
        }
    }

    /// Passes the lease on. A resumed lease is released instead, because its former holder may
    /// still use it.
    fn hand_on(&mut self, options: HoldOptions, now: Instant) -> Step {
        match &mut self.stage {
            Stage::Lease(lease) if !self.is_resumed => {
                lease.hand_on(options, now).map_or(Step::Wait, Step::HandedOn)
            }
            _ => Step::Wait,
        }
    }

    /// Turns the lease into a release. Only a lease gets here.
    fn give_back(&mut self, was_lost: bool, now: Instant) -> Step {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let Stage::Lease(lease) = stage else { return Step::Wait };
        let (expiry, unanswered) = (lease.expiry(), lease.unanswered());
        let release = Release::new(lease.into_ledger(), unanswered, expiry, was_lost, now);
        self.stage = Stage::Release(release);
        Step::Release
    }
}

/// Sends the ballot to the masters that granted the key. If only the meeting point was queried for
/// the key, the other masters are queried for it now.
fn propose(attempt: &mut Attempt, ballot: Option<Ballot>) -> Step {
    if !attempt.others().is_empty() {
        let first = attempt.asked();
        return Step::AskOthers { others: attempt.ask_others(ballot), first, ballot };
    }
    match ballot.and_then(|ballot| Some((ballot, attempt.propose(ballot)?))) {
        Some((ballot, (number, masters))) => Step::SendBallot { number, ballot, masters },
        None => Step::Wait,
    }
}

fn take_again(attempt: &mut Attempt) -> Step {
    let (masters, ballot) = attempt.take_again();
    if masters.is_empty() { Step::Wait } else { Step::AskAgain { masters, ballot } }
}

impl Answered<'_> {
    fn by_attempt(self, attempt: &mut Attempt, now: Instant) -> attempt::Step {
        let Self { master, judged, sent_at, .. } = self;
        match self.to {
            Asked::First => attempt.vote(master, judged, sent_at, now),
            Asked::Ballot(number) => attempt.ballot_vote(number, master, judged, sent_at, now),
            Asked::Score => attempt.score_vote(master, judged, now),
            Asked::Extension(_) | Asked::Readd | Asked::Release => attempt::Step::Wait,
        }
    }

    fn by_lease(self, lease: &mut HeldLease, now: Instant) -> lease::Step {
        let Self { master, judged, sent_at, .. } = self;
        match self.to {
            Asked::First => lease.acquired(master, judged, sent_at, now),
            Asked::Ballot(_) | Asked::Score => lease.balloted(master, judged, sent_at, now),
            Asked::Extension(number) => {
                return lease.extended(number, master, judged, sent_at, now);
            }
            Asked::Readd => lease.readded(master, judged, sent_at, now),
            Asked::Release => {}
        }
        lease::Step::default()
    }

    fn by_release(self, release: &mut Release, now: Instant) -> Option<Released> {
        let Self { master, judged, sent_at, .. } = self;
        match self.to {
            Asked::First => release.acquired(master, judged.answer),
            Asked::Release => release.vote(master, judged, now.saturating_since(sent_at), now),
            _ => None,
        }
    }
}

/// Handles the events that do not end a lease.
fn hold(lease: &mut HeldLease, event: Event<'_>, now: Instant) -> lease::Step {
    match event {
        Event::Tick(random) => return lease.tick(now, random),
        Event::Proven(master) => return lease.ask_again(master, now),
        Event::Voting(master) => return lease.confirm_copy(master, now),
        Event::Extend(timing) => {
            return lease::Step { extend: Some(lease.extend(timing)), ..lease::Step::default() };
        }
        Event::ExtensionTimedOut(number) => {
            let extended = lease.extension_timed_out(number).map(|one| (number, one));
            return lease::Step { extended, ..lease::Step::default() };
        }
        Event::AttemptTimedOut => lease.attempt_timed_out(),
        Event::Disowned(master, _) => lease.disown(master, now),
        Event::Suspected(master, _) => lease.suspect(master, now),
        Event::Unproven(master) => lease.disown_suspected(master, now),
        Event::ProcessEnded(master) => lease.process_ended(master, now),
        Event::Kept => lease.keep_from_here(),
        Event::Limited(timing) => lease.limit(timing),
        _ => {}
    }
    lease::Step::default()
}

fn on_release(release: &mut Release, event: Event<'_>, now: Instant) -> Step {
    let decided = match event {
        Event::Turn => return send(release),
        Event::ReturnedAgain => return reopen(release),
        Event::Retry(master) if release.send_again(master) => {
            return Step::SendRelease(MasterSet::from_iter([master]));
        }
        Event::ReleaseTimedOut => release.time_out(),
        event => {
            match event {
                Event::ProcessEnded(master) => release.process_ended(master, now),
                Event::Expired => release.expire(now),
                Event::Allowed(expiry) => release.masters_allow(expiry),
                Event::GivenUp(master) => release.give_up(master),
                _ => {}
            }
            None
        }
    };
    after_release(release, decided)
}

/// Returns the step after an event of a release. Most answers change nothing for the caller.
#[inline]
fn after_release(release: &Release, decided: Option<Released>) -> Step {
    if decided.is_some() || release.is_over() { Step::Released } else { Step::Wait }
}

/// Sends the requests to every master that may have the key, after all earlier requests to it.
fn send(release: &mut Release) -> Step {
    let masters = release.send();
    if !masters.is_empty() {
        return Step::SendRelease(masters);
    }
    release.time_out();
    Step::Released
}

fn reopen(release: &mut Release) -> Step {
    let is_done = release.outcome() == Some(Released::Done);
    if !is_done && release.reopen() { Step::Release } else { Step::Wait }
}
