//! Waiting for a lock: conditions that end the wait early, and messages during the wait.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::pending;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use redlock_quorum::{AcquireError, Cause, GuardSet, NodeVote, Resource, Votes, quorum};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::answers;
use crate::args::Patience;
use crate::duration::{Wait, spelled};
use crate::exit::{Failure, HELD, UNAVAILABLE};
use crate::held::Entry;
use crate::lists;
use crate::session::{EXAMINE, Session, lists_lacks};
use crate::signals::Signals;
use crate::stderr;

/// Whether a `redlock run` around this command has the key.
pub(crate) enum Found {
    /// An enclosing run has the key, and this is the masters' answer.
    Entry(Entry, String),
    /// None has the key, and this is the rest of the wait.
    None(Wait),
}

impl Session {
    /// Acquires the locks, all or none, unless a signal comes first or waiting turns out to be of
    /// no use.
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
            failure = self.until_waiting_for_itself() => return Err(failure),
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
            let outcome = match self.permits {
                Some(permits) => self.request_permit(permits, wait, max_hold).await,
                None => self.request_locks(wait, max_hold).await,
            };
            match outcome {
                Err(AcquireError::Invalid(why)) if self.shrinks_to_fit(&why) => {}
                outcome => return outcome,
            }
        }
    }

    async fn request_locks(
        &self,
        wait: Wait,
        max_hold: Option<Duration>,
    ) -> Result<GuardSet, AcquireError> {
        let mut request = self.redlock.lock_all(&self.keys).ttl(self.ttl.get());
        request = match wait {
            Wait::For(wait) => request.wait(wait),
            Wait::Forever => request.wait_forever(),
        };
        if let Some(max_hold) = max_hold {
            request = request.max_hold(max_hold);
        }
        request.await
    }

    /// Returns the lock of an enclosing `redlock run`, if one has the key, and the rest of the
    /// wait. Queries the masters until they show that none has it, or until the wait ends. A later
    /// request for the lock reports their answers.
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

    /// Resolves if an enclosing `redlock run` holds one of the locks, or enclosing ones hold all
    /// permits. They wait for this command, so waiting for them would never end.
    async fn until_waiting_for_itself(&self) -> Failure {
        /// Masters that have not answered, or have not been admitted, may do so later.
        const CHECK_AGAIN: Duration = Duration::from_secs(1);
        let wanted = self.permits.unwrap_or(1) as usize;
        if self.held.len() < wanted {
            return pending().await;
        }
        loop {
            if let Some(failure) = self.waits_for_itself().await {
                return failure;
            }
            sleep(CHECK_AGAIN).await;
        }
    }

    async fn waits_for_itself(&self) -> Option<Failure> {
        if let Some(permits) = self.permits {
            return self.all_permits_held_around_us(permits).await.err();
        }
        for key in &self.keys {
            let status = self.redlock.status(key).await;
            if self.held.holds(&status) {
                return Some(waits_for_itself(key, &answers::list(&status)));
            }
        }
        None
    }

    /// Prints once which lock this command waits for, and whether the list may be wrong.
    async fn say_what_is_waited_for(&self, wait: Wait) -> Infallible {
        /// A shorter wait needs no line.
        const SAY_AFTER: Duration = Duration::from_secs(1);
        sleep(SAY_AFTER).await;
        // After a quarantine, a wrong master has the set of the others, and nothing warns any longer.
        self.warn_of_list();
        if !self.is_quiet && (self.is_verbose || io::stderr().is_terminal()) {
            let limit = match wait {
                Wait::For(wait) => format!("up to {} ", spelled(wait)),
                Wait::Forever => String::new(),
            };
            let answers = self.holders_in_words().await;
            let what = if self.permits.is_some() { "a permit of " } else { "" };
            stderr::note(&format!("waiting {limit}for {what}{}: {answers}", self.names()));
        }
        pending().await
    }

    /// Describes who holds what this command waits for.
    async fn holders_in_words(&self) -> String {
        match self.permits {
            Some(permits) => self.permits_in_words(permits).await,
            None => self.answers().await,
        }
    }

    /// The lock was not acquired.
    async fn failure(&self, error: AcquireError, wait: Wait, waited: Duration) -> Failure {
        let again = error.retry_after();
        let votes = error.votes().cloned();
        let begins = votes.as_ref().map_or(Duration::ZERO, begins_within);
        let key = &self.of(&error);
        if let Some(votes) = &votes {
            self.say(key, "not acquired", votes);
        }
        let failure = match error {
            // The wait has ended early, or would have.
            AcquireError::NoQuorum { votes, .. }
                if wait != Wait::For(Duration::ZERO) && is_hopeless(votes.iter().as_slice()) =>
            {
                let said = answers::said(&votes);
                let cause = anyhow!("{key}: no quorum, and waiting will not help: {said}");
                Failure::new(UNAVAILABLE, cause)
            }
            AcquireError::Held { votes, .. } if let Some(permits) = self.permits => {
                self.no_permit(permits, &votes).await
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
        let again = again.map(|again| waited + begins + again);
        self.with_next_step(failure, votes.as_ref(), again).await
    }

    /// Ends the line of a failure with the next step. Missing rights precede the other steps,
    /// because `redlock init` and a quarantine need them as well. So does a list with duplicate
    /// addresses: `init` refuses it, and a wait only admits its masters.
    async fn with_next_step(
        &self,
        failure: Failure,
        votes: Option<&Votes>,
        again: Option<Duration>,
    ) -> Failure {
        let causes = answers::causes(votes.into_iter().flatten());
        let step = next_step(votes.is_some_and(Votes::may_be_new), again);
        let has_other_step = |cause: &Cause| lists_lacks(cause) || lists::is_duplicate(cause);
        match step.filter(|_| !causes.iter().any(has_other_step)) {
            Some(step) => failure.with_hint(&step),
            None => self.explained(failure, &causes).await,
        }
    }

    /// Returns the failure if no quorum shows the last completed run.
    pub(crate) async fn unread(&self, error: AcquireError) -> Failure {
        let votes = error.votes().cloned();
        let failure = match error {
            AcquireError::NoQuorum { votes, .. } => no_quorum(&self.key, &votes),
            AcquireError::Invalid(why) => why.into(),
            error => Failure::new(UNAVAILABLE, error),
        };
        self.with_next_step(failure, votes.as_ref(), None).await
    }

    /// Describes who holds the lock. If no token does, it may be a key of another type, which only
    /// a status shows. A refusal without a holder may also mean that the holder has released it
    /// since.
    async fn refusal(&self, key: &Resource, votes: &Votes) -> String {
        if answers::holder(votes).is_none() {
            let status = self.redlock.status(key).await;
            if answers::is_foreign(&status) {
                let list = answers::list(&status);
                return format!("{key} is not a lock: it is {}: {list}", answers::FOREIGN);
            }
        }
        answers::refusal(&key.to_string(), votes)
    }

    /// Returns the refused key of several.
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
            answers = self.holders_in_words() => answers,
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
    let said = answers::said_without_times(votes);
    Failure::new(UNAVAILABLE, anyhow!("{key}: no quorum, too few voting masters answered: {said}"))
}

/// Returns the next step after a failure without a quorum, if masters may be new, or if a quorum
/// votes after a quarantine.
///
/// `again`: the time until then. It includes the time that this command has waited, because only a
/// connected client makes a quarantine progress, and the next command connects again.
fn next_step(may_be_new: bool, again: Option<Duration>) -> Option<String> {
    /// The time to connect, and to end the quarantine.
    const SPARE: Duration = Duration::from_secs(4);
    let retry = again
        .map(|again| format!("retry with --wait {}s", (again + SPARE).as_millis().div_ceil(1_000)));
    match (may_be_new, retry) {
        (true, retry) => {
            let otherwise = retry.unwrap_or_else(|| EXAMINE.into());
            Some(format!("if these masters are new, run `redlock init`; otherwise {otherwise}"))
        }
        (false, retry) => retry,
    }
}

/// Returns how long it may take until all quarantines have started. Quarantines start after a
/// master has loaded its data, or after one quarantine length, because that master may have a
/// record.
fn begins_within(votes: &Votes) -> Duration {
    let waiting = votes.iter().filter_map(|vote| vote.not_admitted.as_ref());
    let longest = waiting.filter(|not| !not.in_quarantine).filter_map(|not| not.votes_again).max();
    let longest = longest.filter(|_| votes.iter().any(NodeVote::is_loading));
    longest.unwrap_or_default()
}

/// Returns `true` if so many masters can't vote that no quorum is left, however long one waits.
fn is_hopeless(votes: &[NodeVote]) -> bool {
    votes.len() - answers::incurable(votes).len() < quorum(votes.len())
}
