//! `HeldLease`: a token that a quorum of masters holds, until it is over.

use std::time::Duration;

use redlock_core::{Cause, Instant, Verdict};

use super::extension::{Extended, Extension};
use super::heard::{Heard, Shown};
use super::ledger::Ledger;
use super::master_set::MasterSet;
use super::retry;
use crate::lost::LostReason;
use crate::settings::{HoldOptions, Timing};

/// A lease that was won: its extensions, and the instant at which its holder must have stopped.
///
/// The keeper extends it when a third of the TTL has passed since the quorum was confirmed, and
/// again until the deadline. A failed extension releases nothing and shortens nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeldLease {
    ledger: Ledger,
    timing: Timing,
    options: HoldOptions,
    started: Instant,
    /// How long a grant of the attempt itself counts, whatever was asked for since.
    acquired_validity: Duration,
    /// The shortest time that any request for this lease confers.
    validity_min: Duration,
    /// The longest life that any master was asked to give the key, in milliseconds.
    px_max: u64,
    /// When a master has answered last. What the masters did before has expired one life later.
    answered_at: Instant,
    state: State,
    /// Why the lease is lost if its deadline passes.
    lapse: LostReason,
    /// Why it is lost if masters deny the key and no quorum is left.
    evidence: LostReason,
    extensions: Vec<Extension>,
    /// Masters that are being given the key again, and have not answered.
    readding: MasterSet,
    /// Masters that may have lost the key, unless they confirm it.
    suspected: MasterSet,
    last_number: u32,
    keeper: Keeper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Valid until this instant, which is `valid_until` less the stop margin.
    Valid(Instant),
    /// Nothing leaves this state: no lease is revived.
    Over(LostReason),
}

/// What the keeper does, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Keeper {
    /// It extends at this instant.
    Due(Instant),
    /// It has asked, and looks at this instant what came of it.
    Asked { look_at: Instant, failures: u32 },
    /// What it asked did not move the lease: it asks again at this instant.
    Pausing { until: Instant, failures: u32 },
    /// It does not extend, or not any more.
    Off,
}

/// An extension to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extend {
    pub(crate) number: u32,
    pub(crate) masters: MasterSet,
}

/// What follows from an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// An extension is to be sent.
    pub(crate) extend: Option<Extend>,
    /// These masters have no key: they are given ours again.
    pub(crate) readd: MasterSet,
    /// The holder that waits for this extension gets this answer.
    pub(crate) extended: Option<Extended>,
}

impl HeldLease {
    pub(crate) fn new(
        ledger: Ledger,
        timing: Timing,
        options: HoldOptions,
        started: Instant,
        now: Instant,
    ) -> Self {
        let deadline = ledger.valid_until().saturating_sub(options.stop_margin);
        let mut lease = Self {
            ledger,
            timing,
            options,
            started,
            acquired_validity: timing.ttl.validity(),
            validity_min: timing.ttl.validity(),
            px_max: timing.px,
            answered_at: now,
            state: State::Valid(deadline),
            lapse: LostReason::NotExtended,
            evidence: LostReason::NotOurs,
            extensions: Vec::new(),
            readding: MasterSet::EMPTY,
            suspected: MasterSet::EMPTY,
            last_number: 0,
            keeper: Keeper::Off,
        };
        if lease.options.auto_extend {
            lease.keep_from_here();
        }
        lease
    }

    // What the driver asks.

    /// When the holder must have stopped; none once the lease is over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Valid(deadline) => Some(deadline),
            State::Over(_) => None,
        }
    }

    /// Why the lease is over, or will be if its deadline passes.
    pub(crate) fn reason(&self) -> LostReason {
        match self.state {
            State::Valid(_) => self.lapse,
            State::Over(reason) => reason,
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        match (self.state, self.keeper) {
            (State::Over(_), _) | (_, Keeper::Off) => None,
            (_, Keeper::Due(at) | Keeper::Asked { look_at: at, .. }) => Some(at),
            (_, Keeper::Pausing { until, .. }) => Some(until),
        }
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn timing(&self) -> Timing {
        self.timing
    }

    pub(crate) fn stop_margin(&self) -> Duration {
        self.options.stop_margin
    }

    /// How long the key may live where it was set or extended last of all.
    pub(crate) fn life_max(&self) -> Duration {
        Duration::from_millis(self.px_max)
    }

    /// The masters that have not answered some request for this lease.
    pub(crate) fn unanswered(&self) -> MasterSet {
        let acquiring = self.ledger.unanswered().union(self.readding);
        self.extensions.iter().map(Extension::unanswered).fold(acquiring, MasterSet::union)
    }

    /// How long the key may still live on `master`; none for its whole life, counted from when the
    /// master runs again: it may still have a request of ours in its buffers.
    pub(crate) fn left(&self, master: usize, now: Instant) -> Option<Duration> {
        let expires = self.answered_at.saturating_add(self.life_max());
        let is_open = self.unanswered().union(self.ledger.unsettled()).contains(master);
        (!is_open).then(|| expires.saturating_since(now))
    }

    /// The masters that the keeper asked and that have not answered in time, when
    /// [`tick`](Self::tick) is due to write them down.
    pub(crate) fn silent(&self, now: Instant) -> MasterSet {
        match self.keeper {
            Keeper::Asked { look_at, .. } if look_at <= now => self.unanswered(),
            _ => MasterSet::EMPTY,
        }
    }

    /// The masters that have not answered this extension.
    pub(crate) fn unanswered_of(&self, number: u32) -> MasterSet {
        let extension = self.extensions.iter().find(|extension| extension.number == number);
        extension.map(Extension::unanswered).unwrap_or_default()
    }

    /// The lease is over for its holder: released, given up or shut down.
    pub(crate) fn end(&mut self, reason: LostReason) {
        if self.deadline().is_some() {
            self.state = State::Over(reason);
        }
    }

    pub(crate) fn into_ledger(self) -> Ledger {
        self.ledger
    }

    // What happens to it.

    /// The late answer to the `SET` of the attempt: a grant is one more copy.
    pub(crate) fn acquired<'a>(
        &mut self,
        master: usize,
        heard: impl Into<Heard<'a>>,
        sent_at: Instant,
        now: Instant,
    ) {
        let heard = self.hear(heard, now);
        if self.ledger.is_copy(master) {
            return self.ledger.copy_answered(master, heard.answer);
        }
        self.ledger.write_first(master, heard, now.saturating_since(sent_at));
        self.ledger.acquired(master, heard.answer);
        // What is taken over shows its score with the refusal.
        let is_shown = Shown::by(heard.answer) == Shown::Ballots;
        match (&heard.answer.verdict, heard.counts()) {
            (Verdict::BallotRefused, counts) if !(counts && is_shown) => {
                self.ledger.granted_unscored(master, counts.then_some(sent_at));
            }
            (Verdict::Granted | Verdict::BallotRefused, true) => {
                self.ledger.confirm(master, sent_at, self.acquired_validity);
            }
            _ => {}
        }
        self.settle(now);
    }

    /// Every answer comes in here: before anything is made of it, the deadline may have passed.
    fn hear<'a>(&mut self, heard: impl Into<Heard<'a>>, now: Instant) -> Heard<'a> {
        self.answered_at = now;
        self.settle(now);
        heard.into()
    }

    /// The node timeout of the attempt has passed.
    pub(crate) fn attempt_timed_out(&mut self) {
        self.ledger.time_out(self.ledger.pending());
    }

    /// Time has passed. `random`, from 0 to 1, draws the pause after a failure.
    pub(crate) fn tick(&mut self, now: Instant, random: f64) -> Step {
        self.settle(now);
        if self.due().is_none_or(|due| due > now) {
            return Step::default();
        }
        match self.keeper {
            Keeper::Asked { failures, .. } => {
                let (node_timeout, longest) =
                    (self.timing.node_timeout, self.timing.ttl.get() / 10);
                let pause = retry::extension_pause(node_timeout, failures, longest, random);
                let until = now.saturating_add(pause);
                self.keeper = Keeper::Pausing { until, failures: failures.saturating_add(1) };
                Step { readd: self.give_up_waiting(), ..Step::default() }
            }
            Keeper::Pausing { failures, .. } => {
                Step { extend: self.keep(now, failures), ..Step::default() }
            }
            Keeper::Due(_) => Step { extend: self.keep(now, 0), ..Step::default() },
            Keeper::Off => Step::default(),
        }
    }

    /// The keeper begins.
    pub(crate) fn keep_from_here(&mut self) {
        self.keeper = Keeper::Due(self.extension_due());
    }

    /// The keeper asks every master that has answered what it was asked before: one that is slow
    /// or silent is not asked twice, because nothing overtakes on its connection.
    fn keep(&mut self, now: Instant, failures: u32) -> Option<Extend> {
        if self.is_held_long_enough(now) {
            self.keeper = Keeper::Off;
            self.lapse = LostReason::MaxHold;
            return None;
        }
        let look_at = now.saturating_add(self.timing.node_timeout);
        self.keeper = Keeper::Asked { look_at, failures };
        let masters = MasterSet::all(self.ledger.masters()).without(self.unanswered());
        (!masters.is_empty()).then(|| self.extension(masters, false))
    }

    fn is_held_long_enough(&self, now: Instant) -> bool {
        self.options.max_hold.is_some_and(|max| now.saturating_since(self.started) >= max)
    }

    /// The holder wants it to last so long from now, and from each extension that follows.
    pub(crate) fn extend(&mut self, timing: Timing) -> Extend {
        self.timing = timing;
        self.px_max = self.px_max.max(timing.px);
        self.validity_min = self.validity_min.min(timing.ttl.validity());
        self.extension(MasterSet::all(self.ledger.masters()), true)
    }

    fn extension(&mut self, masters: MasterSet, is_awaited: bool) -> Extend {
        self.last_number = self.last_number.wrapping_add(1);
        self.extensions.push(Extension::new(
            self.last_number,
            self.ledger.masters(),
            masters,
            self.timing.ttl.validity(),
            is_awaited,
        ));
        Extend { number: self.last_number, masters }
    }

    /// The answer of `master` to the extension `number`. A master that denies the key is right in
    /// any case.
    pub(crate) fn extended<'a>(
        &mut self,
        number: u32,
        master: usize,
        heard: impl Into<Heard<'a>>,
        sent_at: Instant,
        now: Instant,
    ) -> Step {
        let heard = self.hear(heard, now).of_former_key();
        let before = self.ledger.valid_until();
        self.ledger.write(master, heard, now.saturating_since(sent_at));
        // An extension that was sent before the key was given back says nothing about that.
        if !self.readding.contains(master) {
            self.ledger.extended(master, heard.answer);
        }
        let verdict = self.shown_by_score(master, heard.verdict());
        let validity = self.count(number, master, &verdict);
        match verdict {
            Verdict::Granted => self.confirm(master, sent_at, validity),
            Verdict::NotOurs | Verdict::Held { .. } | Verdict::Unknown(Cause::Demoted(_)) => {
                self.lose(master, LostReason::NotOurs);
            }
            _ => {}
        }
        self.settle(now);
        self.reschedule(before, now);
        let missing = self.find(number).map(Extension::take_missing).unwrap_or_default();
        Step { extend: None, readd: self.give_back(missing), extended: self.conclude(number) }
    }

    /// The holder has seen the end of the lease before `step` was carried out: nothing of it is
    /// sent.
    pub(crate) fn call_off(&mut self, step: Step) -> Step {
        self.readding = self.readding.without(step.readd);
        let number = step.extend.map(|extend| extend.number);
        self.extensions.retain(|extension| Some(extension.number) != number);
        Step { extended: step.extended, ..Step::default() }
    }

    /// From now on each extension lasts for this long only.
    pub(crate) fn limit(&mut self, timing: Timing) {
        self.timing = timing;
        self.validity_min = self.validity_min.min(timing.ttl.validity());
    }

    /// Keys are set again only while the lease is valid: no other can hold a quorum then. Each
    /// master is given its key once at a time.
    fn give_back(&mut self, missing: MasterSet) -> MasterSet {
        if self.deadline().is_none() {
            return MasterSet::EMPTY;
        }
        let missing = missing.without(self.readding);
        missing.iter().for_each(|master| self.ledger.expose(master));
        self.readding = self.readding.union(missing);
        missing
    }

    /// The answer of `master` to a `SET` that gives the key back to it. It counts from when it was
    /// sent, for the shortest time that it can have been sent with, and only if the lease has not
    /// lapsed by now. After a refusal the key may be ours all the same, set by an earlier such
    /// request whose answer was lost.
    pub(crate) fn readded<'a>(
        &mut self,
        master: usize,
        heard: impl Into<Heard<'a>>,
        sent_at: Instant,
        now: Instant,
    ) {
        let heard = self.hear(heard, now).of_former_key();
        self.readding.remove(master);
        let before = self.ledger.valid_until();
        self.ledger.write(master, heard, now.saturating_since(sent_at));
        if heard.verdict() == Verdict::Granted {
            self.confirm(master, sent_at, self.validity_min);
            self.settle(now);
            self.reschedule(before, now);
        }
    }

    /// The node timeout of an extension that its holder waits for has passed.
    pub(crate) fn extension_timed_out(&mut self, number: u32) -> Option<Extended> {
        let unanswered = self.find(number)?.time_out();
        self.ledger.time_out(unanswered);
        self.conclude(number)
    }

    /// `master` may have lost its data: another process answers there, or it says so itself. What
    /// it still has it confirms with the next extension, which is due at once.
    pub(crate) fn disown(&mut self, master: usize, now: Instant) {
        self.suspected.remove(master);
        self.lose(master, LostReason::DataLost);
        self.settle(now);
        self.doubt(now);
    }

    /// The server process of `master` is gone, and with it all that was on its way there: a key
    /// that it wrote down expires within one life from here.
    pub(crate) fn process_ended(&mut self, master: usize, now: Instant) {
        self.answered_at = now;
        self.ledger.process_ended(master);
    }

    /// Some master's data may be gone: each is asked at once what it still has.
    pub(crate) fn doubt(&mut self, now: Instant) {
        if let Keeper::Due(_) = self.keeper {
            self.keeper = Keeper::Due(now);
        }
    }

    /// `master` has proven that its data is there, and is asked whether it has its copy.
    pub(crate) fn ask_again(&mut self, master: usize, now: Instant) -> Step {
        self.settle(now);
        let has_copy = self.ledger.hold_until(master) > now;
        if has_copy { self.ask_alone(master, now) } else { Step::default() }
    }

    /// `master` votes, and did not before. A copy that it got meanwhile counts once it is confirmed:
    /// the master is asked for that at once, because until then the lease would not survive the
    /// loss of another.
    pub(crate) fn confirm_copy(&mut self, master: usize, now: Instant) -> Step {
        self.settle(now);
        let is_open = self.ledger.hold_until(master) <= now;
        let may_hold = self.ledger.may_hold().contains(master);
        if is_open && may_hold { self.ask_alone(master, now) } else { Step::default() }
    }

    /// An extension at `master` alone. One that has not answered is not asked twice, and what the
    /// keeper does not extend stays as it is.
    fn ask_alone(&mut self, master: usize, now: Instant) -> Step {
        let is_kept = self.due().is_some() && !self.is_held_long_enough(now);
        if !is_kept || self.unanswered().contains(master) {
            return Step::default();
        }
        let extend = self.extension(MasterSet::from_iter([master]), false);
        Step { extend: Some(extend), ..Step::default() }
    }

    /// `master` may have lost its data, and nothing but the key itself can prove that it has not.
    pub(crate) fn suspect(&mut self, master: usize) {
        self.suspected.insert(master);
    }

    /// It had time to.
    pub(crate) fn disown_suspected(&mut self, master: usize, now: Instant) {
        if self.suspected.contains(master) {
            self.disown(master, now);
        }
    }

    fn confirm(&mut self, master: usize, sent_at: Instant, validity: Duration) {
        self.suspected.remove(master);
        self.ledger.confirm(master, sent_at, validity);
    }

    fn lose(&mut self, master: usize, reason: LostReason) {
        self.ledger.disown(master);
        self.evidence = reason;
    }

    fn find(&mut self, number: u32) -> Option<&mut Extension> {
        self.extensions.iter_mut().find(|extension| extension.number == number)
    }

    /// Counts a vote, and returns the validity that this extension confers. Every extension stays
    /// until all its votes are in; if it did not, zero would confirm nothing.
    fn count(&mut self, number: u32, master: usize, verdict: &Verdict) -> Duration {
        self.find(number).map_or(Duration::ZERO, |extension| {
            extension.count(master, verdict);
            extension.validity
        })
    }

    fn conclude(&mut self, number: u32) -> Option<Extended> {
        let extended = self.find(number)?.conclude();
        self.extensions.retain(|extension| !extension.is_over());
        extended
    }

    /// Moves the deadline to where the confirmations put it, unless it has passed.
    fn settle(&mut self, now: Instant) {
        let State::Valid(deadline) = self.state else { return };
        let until = self.ledger.valid_until().saturating_sub(self.options.stop_margin);
        self.state = if deadline <= now {
            State::Over(self.lapse)
        } else if until <= now {
            State::Over(self.evidence)
        } else {
            State::Valid(until)
        };
    }

    /// What has moved the lease, which was valid until `before`, is followed by the next extension
    /// in its time.
    fn reschedule(&mut self, before: Instant, now: Instant) {
        let due = self.extension_due();
        if self.keeper != Keeper::Off && self.ledger.valid_until() > before && due > now {
            self.keeper = Keeper::Due(due);
        }
    }

    /// A third of the holder's time after the quorum was confirmed: two more extensions can fail
    /// before the lease is over.
    fn extension_due(&self) -> Instant {
        let confirmed = self.ledger.valid_until().saturating_sub(self.timing.ttl.validity());
        let time = self.timing.ttl.get().saturating_sub(self.options.stop_margin);
        confirmed.saturating_add(time / 3)
    }

    /// Masters that have not answered the keeper in time are written down as such, and are not
    /// waited for by those that have no key.
    fn give_up_waiting(&mut self) -> MasterSet {
        let mut missing = MasterSet::EMPTY;
        for extension in self.extensions.iter_mut().filter(|one| !one.is_awaited()) {
            self.ledger.time_out(extension.unanswered());
            missing = missing.union(extension.take_all_missing());
        }
        self.give_back(missing)
    }
}

mod scores;

#[cfg(test)]
mod tests;
