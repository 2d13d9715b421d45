//! Waiting for a lock: what ends the wait early, and what is said meanwhile.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::pending;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use redlock_quorum::{AcquireError, GuardSet, NodeVote, Resource, Status, Votes, quorum};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::answers;
use crate::args::Patience;
use crate::duration::{Wait, at_least, spelled};
use crate::exit::{Failure, HELD, UNAVAILABLE};
use crate::held::Entry;
use crate::session::Session;
use crate::signals::Signals;
use crate::stderr;

/// Whether a `redlock run` around this command has the key.
pub(crate) enum Found {
    /// One has, and this is what the masters say.
    Entry(Entry, String),
    /// None has; this is left of the wait.
    None(Wait),
}

impl Session {
    /// Acquires the locks, all or none, unless a signal comes first or waiting turns out to be of no
    /// use.
    pub(crate) async fn acquire(
        &self,
        patience: Patience,
        wait: Wait,
        max_hold: Option<Duration>,
        signals: &mut Signals,
    ) -> Result<GuardSet, Failure> {
        let outcome = tokio::select! {
            biased;
            signal = signals.next() => Err(self.stopped_by(signal, signals).await),
            outcome = self.wait_for(patience.over(wait), max_hold) => outcome,
        };
        let locks = outcome.map_err(|failure| {
            let failure = failure.held_as(patience.held_code, self.is_quiet);
            self.leaves_quietly.set(failure.is_quiet);
            failure
        })?;
        let tokens = locks.iter().map(|guard| guard.token().to_string());
        self.tokens.borrow_mut().extend(tokens);
        Ok(locks)
    }

    async fn wait_for(&self, wait: Wait, max_hold: Option<Duration>) -> Result<GuardSet, Failure> {
        let begun = Instant::now();
        // Dropping the request gives it up: what it has set is released.
        let outcome = tokio::select! {
            biased;
            outcome = self.request(wait, max_hold) => outcome,
            (key, status) = self.is_held_around_us() => {
                return Err(waits_for_itself(key, &answers::list(&status)));
            }
            never = self.say_what_is_waited_for(wait) => match never {},
        };
        match outcome {
            Ok(locks) => Ok(locks),
            Err(error) => Err(self.failure(error, wait, begun.elapsed()).await),
        }
    }

    async fn request(
        &self,
        wait: Wait,
        max_hold: Option<Duration>,
    ) -> Result<GuardSet, AcquireError> {
        loop {
            let mut request = self.redlock.lock_all(&self.keys).ttl(self.ttl.get());
            request = match wait {
                Wait::For(wait) => request.wait(wait),
                Wait::Forever => request.wait_forever(),
            };
            if let Some(max_hold) = max_hold {
                request = request.max_hold(max_hold);
            }
            match request.await {
                Err(AcquireError::Invalid(why)) if self.shrinks_to_fit(&why) => {}
                outcome => return outcome,
            }
        }
    }

    /// The lock of a `redlock run` around this command, where one has the key, and how much of the
    /// wait is left. Masters are asked until they say that none has, or until the wait ends: whoever
    /// takes the lock then is told what they say.
    pub(crate) async fn entry(
        &self,
        patience: Patience,
        wait: Wait,
        signals: &mut Signals,
    ) -> Result<Found, Failure> {
        tokio::select! {
            biased;
            signal = signals.next() => Err(self.stopped_by(signal, signals).await),
            found = self.find_entry(patience.over(wait)) => Ok(found),
            never = self.say_what_is_waited_for(wait) => match never {},
        }
    }

    async fn find_entry(&self, wait: Wait) -> Found {
        const CHECK_AGAIN: Duration = Duration::from_millis(200);
        let began = Instant::now();
        while !self.held.is_empty() {
            let status = self.status().await;
            if let Some(entry) = self.held.entry(&status) {
                return Found::Entry(entry, answers::list(&status));
            }
            let left = wait.after(began.elapsed());
            let is_open = self.held.may_hold(&status) && !is_hopeless(&status.nodes);
            if !is_open || left == Wait::For(Duration::ZERO) {
                return Found::None(left);
            }
            sleep(CHECK_AGAIN).await;
        }
        Found::None(wait)
    }

    /// Resolves when one of the locks is that of a `redlock run` around this command. That one waits
    /// for us, so to wait for it would have no end.
    async fn is_held_around_us(&self) -> (&Resource, Status) {
        /// Masters that have not answered, or have not been admitted, may do so later.
        const CHECK_AGAIN: Duration = Duration::from_secs(1);
        if self.held.is_empty() {
            return pending().await;
        }
        loop {
            for key in &self.keys {
                let status = self.redlock.status(key).await;
                if self.held.holds(&status) {
                    return (key, status);
                }
            }
            sleep(CHECK_AGAIN).await;
        }
    }

    /// Says once what is waited for, and that the list may be wrong.
    async fn say_what_is_waited_for(&self, wait: Wait) -> Infallible {
        /// Who waits for less than this wants no line about it.
        const SAY_AFTER: Duration = Duration::from_secs(1);
        sleep(SAY_AFTER).await;
        // After a quarantine, a wrong master has the set of the others, and nothing warns any longer.
        self.warn_of_list();
        if !self.is_quiet && (self.is_verbose || io::stderr().is_terminal()) {
            let limit = match wait {
                Wait::For(wait) => format!("up to {} ", spelled(wait)),
                Wait::Forever => String::new(),
            };
            stderr::note(&format!("waiting {limit}for {}: {}", self.names(), self.answers().await));
        }
        pending().await
    }

    /// The lock was not acquired.
    async fn failure(&self, error: AcquireError, wait: Wait, waited: Duration) -> Failure {
        let (again, visits) = (error.retry_after(), error.retry_after_visits());
        let votes = error.votes().cloned();
        let begins = votes.as_ref().map_or(Duration::ZERO, begins_within);
        let key = &self.of(&error);
        let failure = match error {
            // The wait has ended early, or would have.
            AcquireError::NoQuorum { votes, .. }
                if wait != Wait::For(Duration::ZERO) && is_hopeless(votes.iter().as_slice()) =>
            {
                let said = answers::said(&votes);
                let cause = anyhow!("{key}: no quorum, and waiting will not help: {said}");
                Failure::new(UNAVAILABLE, cause)
            }
            AcquireError::Held { votes, .. } if self.held.refuses(&votes) => {
                waits_for_itself(key, &answers::refused(&votes))
            }
            AcquireError::Held { votes, .. } => {
                Failure::new(HELD, anyhow!(self.refusal(key, &votes).await))
            }
            AcquireError::Invalid(why) => why.into(),
            AcquireError::NoQuorum { votes, .. } => no_quorum(key, &votes),
            AcquireError::TooLate { votes, .. } => {
                let said = answers::said(&votes);
                let cause = "granted too late, no validity was left";
                Failure::new(UNAVAILABLE, anyhow!("{key}: {cause}: {said}"))
            }
            error => Failure::new(UNAVAILABLE, error),
        };
        let causes = answers::causes(votes.iter().flatten());
        let failure = self.explained(failure, &causes).await;
        match again {
            Some(again) => {
                let visits = visits.map(|visits| begins + visits);
                failure.with_hint(&votes_again(waited + begins + again, visits))
            }
            None => failure,
        }
    }

    /// No quorum says what was completed under the key.
    pub(crate) async fn unread(&self, error: AcquireError) -> Failure {
        let votes = error.votes().cloned();
        let failure = match error {
            AcquireError::NoQuorum { votes, .. } => no_quorum(&self.key, &votes),
            AcquireError::Invalid(why) => why.into(),
            error => Failure::new(UNAVAILABLE, error),
        };
        self.explained(failure, &answers::causes(votes.iter().flatten())).await
    }

    /// Who holds the lock. Where no token does, it may be a key of another type, which only a
    /// status shows: a refusal that names nobody may also be one whose holder has gone since.
    async fn refusal(&self, key: &Resource, votes: &Votes) -> String {
        if answers::holder(votes).is_none() {
            let status = self.redlock.status(key).await;
            if answers::is_foreign(&status) {
                let list = answers::list(&status);
                return format!("{key} is held by another: {}: {list}", answers::FOREIGN);
            }
        }
        answers::refusal(&key.to_string(), votes)
    }

    /// Of several keys, the one that was refused.
    fn of(&self, error: &AcquireError) -> Resource {
        match error {
            AcquireError::Held { resource, .. }
            | AcquireError::NoQuorum { resource, .. }
            | AcquireError::TooLate { resource, .. } => resource.clone(),
            _ => self.key.clone(),
        }
    }

    /// A second signal does not wait for what the masters answer.
    pub(crate) async fn stopped_by(&self, signal: Signal, signals: &mut Signals) -> Failure {
        let answers = tokio::select! {
            biased;
            _ = signals.next() => "did not wait for the masters' answers".into(),
            answers = self.answers() => answers,
        };
        Failure::cancelled(signal, &self.names(), &answers)
    }
}

fn waits_for_itself(key: &Resource, answers: &impl Display) -> Failure {
    let cause = "this lock is held by the enclosing `redlock run`";
    let cure = "use `redlock run --reentrant` to run under it";
    Failure::new(HELD, anyhow!("{key}: {cause}: {answers}; {cure}"))
}

fn no_quorum(key: &Resource, votes: &Votes) -> Failure {
    let said = answers::said(votes);
    let failure = Failure::new(
        UNAVAILABLE,
        anyhow!("no quorum for {key}, too few voting masters answered: {said}"),
    );
    match votes.may_be_new() {
        true => failure.with_hint("if these masters are new, run `redlock init`"),
        false => failure,
    }
}

/// When a quorum votes again: by a command that stays, and by those that live a moment.
///
/// The next command that stays begins anew: it needs the time that this one has waited, and what
/// was left then. Those that live a moment need a master that votes beside those that do not.
fn votes_again(staying: Duration, visits: Option<Duration>) -> String {
    /// To connect, and to end the quarantine.
    const SPARE: Duration = Duration::from_secs(4);
    let wait = (staying + SPARE).as_millis().div_ceil(1_000);
    let staying = at_least(staying);
    let stays = format!("retry with --wait {wait}s or more (the quarantine ends in {staying})");
    match visits {
        Some(visits) => {
            let visits = at_least(visits);
            format!("{stays}; without --wait, repeated attempts end it within {visits}")
        }
        None => format!("{stays}; attempts without --wait never end it"),
    }
}

/// How long it may take until the quarantines begin that have not begun. A master that reads its
/// data is waited for before, for as long as a quarantine lasts: it may have a record.
fn begins_within(votes: &Votes) -> Duration {
    let waiting = votes.iter().filter_map(|vote| vote.not_admitted.as_ref());
    let longest = waiting.filter(|not| !not.in_quarantine).filter_map(|not| not.votes_again).max();
    let longest = longest.filter(|_| votes.iter().any(NodeVote::is_loading));
    longest.unwrap_or_default()
}

/// Whether so many masters can't vote that no quorum is left, however long one waits.
fn is_hopeless(votes: &[NodeVote]) -> bool {
    votes.len() - answers::incurable(votes).len() < quorum(votes.len())
}
