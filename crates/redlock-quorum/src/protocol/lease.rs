//! `HeldLease`: a token that a quorum of masters holds, until it is over.

use std::time::Duration;

use redlock_core::{Answer, Cause, Instant, Verdict};

use super::ledger::Ledger;
use super::master_set::MasterSet;
use super::retry;
use super::tally::{Decision, Tally};
use crate::lost::LostReason;
use crate::quorum::quorum;
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
    state: State,
    /// Why the lease is lost if its deadline passes.
    lapse: LostReason,
    /// Why it is lost if masters deny the key and no quorum is left.
    evidence: LostReason,
    extensions: Vec<Extension>,
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

/// One extension on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Extension {
    number: u32,
    validity: Duration,
    tally: Tally,
    unanswered: MasterSet,
    /// Masters that have no key: they may be given ours again.
    missing: MasterSet,
    is_awaited: bool,
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

/// How an extension went that its holder waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extended {
    /// A quorum has confirmed it.
    Confirmed,
    /// So many masters do not hold our key that no quorum does.
    NotOurs,
    /// Too few masters have answered.
    NoQuorum,
}

impl HeldLease {
    pub(crate) fn new(
        ledger: Ledger,
        timing: Timing,
        options: HoldOptions,
        started: Instant,
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
            state: State::Valid(deadline),
            lapse: LostReason::NotExtended,
            evidence: LostReason::NotOurs,
            extensions: Vec::new(),
            last_number: 0,
            keeper: Keeper::Off,
        };
        if lease.options.auto_extend {
            lease.keeper = Keeper::Due(lease.extension_due());
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
            (_, Keeper::Due(at)) => Some(at),
            (_, Keeper::Asked { look_at, .. }) => Some(look_at),
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
        let extending = self.extensions.iter().map(|extension| extension.unanswered);
        extending.fold(self.ledger.pending(), MasterSet::union)
    }

    /// The lease is over for its holder: released, given up or shut down.
    pub(crate) fn end(&mut self, reason: LostReason) {
        if let State::Valid(_) = self.state {
            self.state = State::Over(reason);
        }
    }

    pub(crate) fn into_ledger(self) -> Ledger {
        self.ledger
    }

    // What happens to it.

    /// The late answer to the `SET` of the attempt: a grant is one more copy.
    pub(crate) fn acquired(
        &mut self,
        master: usize,
        answer: &Answer,
        sent_at: Instant,
        now: Instant,
    ) {
        self.ledger.write(master, answer, now.saturating_since(sent_at));
        self.ledger.acquired(master, answer);
        if answer.verdict == Verdict::Granted {
            self.ledger.confirm(master, sent_at, self.acquired_validity);
            self.settle(now);
        }
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
                let until = now.saturating_add(self.pause(failures, random));
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

    /// The keeper asks every master that has answered what it was asked before: one that is slow
    /// or silent is not asked twice, because nothing overtakes on its connection.
    fn keep(&mut self, now: Instant, failures: u32) -> Option<Extend> {
        let held = now.saturating_since(self.started);
        if self.options.max_hold.is_some_and(|max_hold| held >= max_hold) {
            self.keeper = Keeper::Off;
            self.lapse = LostReason::MaxHold;
            return None;
        }
        let look_at = now.saturating_add(self.timing.node_timeout);
        self.keeper = Keeper::Asked { look_at, failures };
        let masters = MasterSet::all(self.ledger.masters()).without(self.unanswered());
        (!masters.is_empty()).then(|| self.extension(masters, false))
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
        self.extensions.push(Extension {
            number: self.last_number,
            validity: self.timing.ttl.validity(),
            tally: Tally::new(self.ledger.masters()),
            unanswered: masters,
            missing: MasterSet::EMPTY,
            is_awaited,
        });
        Extend { number: self.last_number, masters }
    }

    /// The answer of `master` to the extension `number`.
    pub(crate) fn extended(
        &mut self,
        number: u32,
        master: usize,
        answer: &Answer,
        sent_at: Instant,
        now: Instant,
    ) -> Step {
        self.ledger.write(master, answer, now.saturating_since(sent_at));
        self.ledger.extended(master, answer);
        let validity = self.count(number, master, &answer.verdict);
        match &answer.verdict {
            Verdict::Granted => self.ledger.confirm(master, sent_at, validity),
            Verdict::NotOurs | Verdict::Held { .. } => self.lose(master, LostReason::NotOurs),
            Verdict::Unknown(Cause::Demoted(_)) => self.lose(master, LostReason::NotOurs),
            _ => {}
        }
        self.settle(now);
        self.reschedule(now);
        let readd = self.missing(number);
        Step { extend: None, readd, extended: self.concluded(number) }
    }

    /// The masters that the extension `number` found without a key, once its outcome is certain:
    /// a lease that is lost with the next answer gives nothing back.
    fn missing(&mut self, number: u32) -> MasterSet {
        let is_certain = |one: &&mut Extension| {
            one.number == number
                && (one.unanswered.is_empty() || one.tally.decision() == Decision::Won)
        };
        let missing = match self.extensions.iter_mut().find(is_certain) {
            Some(extension) => std::mem::take(&mut extension.missing),
            None => MasterSet::EMPTY,
        };
        self.give_back(missing)
    }

    /// Keys are set again only while the lease is valid: no other can hold a quorum then.
    fn give_back(&mut self, missing: MasterSet) -> MasterSet {
        if self.deadline().is_none() {
            return MasterSet::EMPTY;
        }
        missing.iter().for_each(|master| self.ledger.expose(master));
        missing
    }

    /// The answer of `master` to a `SET` that gives the key back to it. It counts from when it was
    /// sent, for the shortest time that it can have been sent with, and only if the lease has not
    /// lapsed by now. A refusal says nothing new: the key that stands there may be the one that
    /// another such request has set.
    pub(crate) fn readded(
        &mut self,
        master: usize,
        answer: &Answer,
        sent_at: Instant,
        now: Instant,
    ) {
        self.settle(now);
        if answer.verdict == Verdict::Granted {
            self.ledger.write(master, answer, now.saturating_since(sent_at));
            self.ledger.confirm(master, sent_at, self.validity_min);
            self.settle(now);
            self.reschedule(now);
        }
    }

    /// The node timeout of an extension that its holder waits for has passed.
    pub(crate) fn extension_timed_out(&mut self, number: u32) -> Option<Extended> {
        let extension = self.extensions.iter_mut().find(|one| one.number == number)?;
        extension.tally.close();
        let unanswered = extension.unanswered;
        self.ledger.time_out(unanswered);
        self.concluded(number)
    }

    /// `master` may have lost its data: another process answers there, or it says so itself. What
    /// it still has it confirms with the next extension, which is due at once.
    pub(crate) fn disown(&mut self, master: usize, now: Instant) {
        self.lose(master, LostReason::DataLost);
        self.settle(now);
        if let Keeper::Due(_) = self.keeper {
            self.keeper = Keeper::Due(now);
        }
    }

    fn lose(&mut self, master: usize, reason: LostReason) {
        self.ledger.disown(master);
        self.evidence = reason;
    }

    /// Counts a vote, and returns the validity that this extension confers.
    fn count(&mut self, number: u32, master: usize, verdict: &Verdict) -> Duration {
        let Some(extension) = self.extensions.iter_mut().find(|one| one.number == number) else {
            // Every extension stays until all its votes are in: this is never reached, and zero
            // would confirm nothing.
            return Duration::ZERO;
        };
        extension.unanswered.remove(master);
        if *verdict == Verdict::NotOurs {
            extension.missing.insert(master);
        }
        if extension.tally.pending() > 0 {
            extension.tally.count(verdict);
        }
        extension.validity
    }

    /// The answer for the holder that waits: at once where a quorum has confirmed; otherwise when
    /// all have answered, so that it can say what each master said.
    fn concluded(&mut self, number: u32) -> Option<Extended> {
        let at = self.extensions.iter().position(|one| one.number == number)?;
        let masters = self.ledger.masters();
        let extension = &mut self.extensions[at];
        let extended = match extension.tally.decision() {
            Decision::Won => Some(Extended::Confirmed),
            _ if extension.tally.pending() > 0 => None,
            _ if extension.tally.refused() > masters - quorum(masters) => Some(Extended::NotOurs),
            _ => Some(Extended::NoQuorum),
        };
        let extended = extended.filter(|_| extension.is_awaited);
        extension.is_awaited &= extended.is_none();
        if extension.unanswered.is_empty() && !extension.is_awaited {
            self.extensions.remove(at);
        }
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

    /// An extension that has moved the lease far enough is followed by the next in its time.
    fn reschedule(&mut self, now: Instant) {
        let due = self.extension_due();
        if self.keeper != Keeper::Off && due > now {
            self.keeper = Keeper::Due(due);
        }
    }

    /// A third of the TTL after the quorum was confirmed: two more extensions can fail before the
    /// lease is over.
    fn extension_due(&self) -> Instant {
        let confirmed = self.ledger.valid_until().saturating_sub(self.timing.ttl.validity());
        confirmed.saturating_add(self.timing.ttl.get() / 3)
    }

    /// Masters that have not answered the latest extension in time are written down as such, and
    /// are not waited for by those that have no key.
    fn give_up_waiting(&mut self) -> MasterSet {
        let Some(extension) = self.extensions.last_mut() else { return MasterSet::EMPTY };
        let (unanswered, missing) = (extension.unanswered, std::mem::take(&mut extension.missing));
        self.ledger.time_out(unanswered);
        self.give_back(missing)
    }

    fn pause(&self, failures: u32, random: f64) -> Duration {
        let longest = self.timing.ttl.get() / 10;
        retry::extension_pause(self.timing.node_timeout, failures, longest, random)
    }
}
