//! Waiting for a lock: what ends the wait early, and what is said meanwhile.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use redlock_quorum::{AcquireError, Guard, Votes};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::answers::{self, Barred, quorum};
use crate::args::Patience;
use crate::duration::Wait;
use crate::exit::{Failure, HELD, UNAVAILABLE};
use crate::output;
use crate::session::Session;
use crate::signals::Signals;

impl Session {
    /// Acquires the lock, unless a signal comes first or waiting turns out to be of no use.
    pub(crate) async fn acquire(
        &self,
        patience: Patience,
        wait: Wait,
        max_hold: Option<Duration>,
        signals: &mut Signals,
    ) -> Result<Guard, Failure> {
        // Dropping the request gives it up: what it has set is released.
        let outcome = tokio::select! {
            biased;
            signal = signals.next() => Err(self.stopped_by(signal, signals).await),
            outcome = self.wait_for(patience.over(wait), max_hold) => outcome,
        };
        outcome.map_err(|failure| {
            let failure = failure.held_as(patience.held_code, self.is_quiet);
            self.leaves_quietly.set(failure.is_quiet);
            failure
        })
    }

    /// The first attempt shows whether waiting is of any use.
    async fn wait_for(&self, wait: Wait, max_hold: Option<Duration>) -> Result<Guard, Failure> {
        let began = Instant::now();
        let error = match self.request(Wait::For(Duration::ZERO), max_hold).await {
            Ok(guard) => return Ok(guard),
            Err(error) => error,
        };
        let left = match (wait, error.votes()) {
            (Wait::For(Duration::ZERO), _) | (_, None) => return Err(self.failure(error).await),
            (Wait::For(wait), _) => Wait::For(wait.saturating_sub(began.elapsed())),
            (Wait::Forever, _) => Wait::Forever,
        };
        if let Some(votes) = error.votes() {
            self.check_use(&answers::barred(votes), votes.len(), votes)?;
        }
        tokio::select! {
            biased;
            outcome = self.request(left, max_hold) => match outcome {
                Ok(guard) => Ok(guard),
                Err(error) => Err(self.failure(error).await),
            },
            failure = self.watch(wait) => Err(failure),
        }
    }

    async fn request(&self, wait: Wait, max_hold: Option<Duration>) -> Result<Guard, AcquireError> {
        let mut request = self.redlock.lock(&self.key).ttl(self.ttl);
        request = match wait {
            Wait::For(wait) => request.wait(wait),
            Wait::Forever => request.wait_forever(),
        };
        if let Some(max_hold) = max_hold {
            request = request.max_hold(max_hold);
        }
        request.await
    }

    /// Says once what is waited for, and resolves when waiting has become of no use.
    async fn watch(&self, wait: Wait) -> Failure {
        /// Who waits for less than this wants no line about it.
        const SAY_AFTER: Duration = Duration::from_secs(1);
        /// A password or a list of masters is not changed every second.
        const LOOK_AGAIN: Duration = Duration::from_secs(10);
        sleep(SAY_AFTER).await;
        if self.is_verbose || io::stderr().is_terminal() {
            let limit = match wait {
                Wait::For(wait) => format!("up to {wait:?} "),
                Wait::Forever => String::new(),
            };
            output::note(&format!("waiting {limit}for {}: {}", self.key, self.answers().await));
        }
        loop {
            let status = self.status().await;
            let (barred, list) = (answers::barred_by_status(&status), answers::list(&status));
            if let Err(failure) = self.check_use(&barred, status.nodes.len(), &list) {
                return failure;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// An error when so many masters can't vote that no quorum is left, however long one waits.
    fn check_use(
        &self,
        barred: &[Barred<'_>],
        masters: usize,
        answers: &impl std::fmt::Display,
    ) -> Result<(), Failure> {
        if masters - barred.len() >= quorum(masters) {
            return Ok(());
        }
        let cause = anyhow!("no quorum for {}, and waiting does not cure it: {answers}", self.key);
        Err(self.explained(Failure::new(UNAVAILABLE, cause)))
    }

    /// The lock was not acquired.
    async fn failure(&self, error: AcquireError) -> Failure {
        let failure = match &error {
            AcquireError::Held { votes, .. } => {
                Failure::new(HELD, anyhow!(self.refusal(votes).await))
            }
            _ => error.into(),
        };
        self.explained(failure)
    }

    /// Who holds the lock. Where no token does, it may be a key of another type, which only a
    /// status shows: a refusal that names nobody may also be one whose holder has gone since.
    async fn refusal(&self, votes: &Votes) -> String {
        let key = self.key.to_string();
        if answers::holder(votes).is_none() {
            let status = self.status().await;
            if answers::is_foreign(&status) {
                let list = answers::list(&status);
                return format!("{key} is held by another: {}: {list}", answers::FOREIGN);
            }
        }
        answers::refusal(&key, votes)
    }

    /// A second signal does not wait for what the masters answer.
    async fn stopped_by(&self, signal: Signal, signals: &mut Signals) -> Failure {
        let answers = tokio::select! {
            biased;
            _ = signals.next() => "no answers were waited for".into(),
            answers = self.answers() => answers,
        };
        Failure::cancelled(signal, &self.key, &answers)
    }
}
