//! `OnceGuard`: the lock of a job that runs once, and its mark, which records the completion.
//!
//! The documentation of the module `once` has the states and failures.

use std::future::Future;
use std::ops::Deref;
use std::time::SystemTime;

use redlock_core::{Label, Mark, Verdict};
use redlock_protocol::marks::{Reading, When};
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::quorum::quorum;
use tokio::time::sleep;

use crate::error::{AcquireError, MarkError, ReleaseError};
use crate::guard::Guard;
use crate::handle::Handle;
use crate::marks::LastRun;
use crate::run_error::RunError;
use crate::votes::{NodeVote, Votes};

/// The outcome of [`OnceRequest::begin`](crate::OnceRequest::begin).
#[derive(Debug)]
pub enum Begun {
    /// The job is due, and this guard holds its lock.
    Run(OnceGuard),
    /// The job was already completed.
    Done {
        /// Start of the last run. See [`Once::Done`](crate::Once::Done).
        at: SystemTime,
        /// Label of the process that completed it. See [`Once::Done`](crate::Once::Done).
        by: Option<String>,
    },
}

/// A [`Begun`] with everything that the mark shows.
#[doc(hidden)]
#[derive(Debug)]
pub enum Decided {
    /// The job is due. See [`Begun::Run`].
    Run(OnceGuard),
    /// The job was already completed, by this run.
    Done(LastRun),
}

impl From<Decided> for Begun {
    fn from(decided: Decided) -> Self {
        match decided {
            Decided::Run(guard) => Self::Run(guard),
            Decided::Done(LastRun { at, by, .. }) => Self::Done { at, by },
        }
    }
}

/// The lock of a job that runs once, while it runs. It derefs to its [`Guard`] for reading the
/// state, waiting for the loss, and extending.
///
/// Dropping it, like [`release`](Self::release), means that the job was not completed. The lock is
/// released, and another host repeats the job.
#[must_use = "if dropped, the completion is not recorded, and the job runs again"]
#[derive(Debug)]
pub struct OnceGuard {
    guard: Guard,
    mark: Mark,
    /// Time for which masters keep the mark, in milliseconds.
    kept: u64,
}

impl OnceGuard {
    /// Records the completion of the job, and releases its lock.
    ///
    /// # Errors
    /// - [`MarkError::Lost`] if the lock was already lost. There is no mark, and another host may
    ///   have started the job.
    /// - [`MarkError::NoQuorum`] if too few masters acknowledged the mark within one TTL. The lock
    ///   is left to expire. After that, the job may run again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lock to expire. It is then unknown whether the masters have
    /// the mark.
    pub async fn complete(self) -> Result<(), MarkError> {
        let Self { guard, mark, kept } = self;
        guard.check()?;
        let marking = Marking(Some(guard));
        marking.raise(&mark, kept).await?;
        marking.release().await;
        Ok(())
    }

    /// Releases the lock without a mark, because the job was not completed. See [`Guard::release`].
    ///
    /// # Errors
    /// The same as [`Guard::release`].
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.guard.release().await
    }

    /// Releases the lock after the job has failed. Only the job's error matters.
    pub(super) async fn leave(self) {
        self.guard.leave().await;
    }

    /// Records the completion of the job, with this output.
    pub(super) async fn end<T>(self, output: T) -> Result<T, RunError<T>> {
        let handle = self.guard.handle().clone();
        ended(&handle, self.complete().await, output)
    }
}

/// Returns the result of a job that ran, with its output.
pub(crate) fn ended<T>(
    handle: &Handle,
    completed: Result<(), MarkError>,
    output: T,
) -> Result<T, RunError<T>> {
    match completed {
        Ok(()) => Ok(output),
        Err(MarkError::Lost(lost)) => Err(RunError::Lost { lost, output: Some(output) }),
        Err(error) => {
            handle.warn_of_mark(&error);
            Ok(output)
        }
    }
}

impl Deref for OnceGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// A lock while the mark of its job is written. If it is not released, it is left to expire. Until
/// then, no host repeats the job, which may have left no mark.
struct Marking(Option<Guard>);

impl Marking {
    async fn raise(&self, mark: &Mark, kept: u64) -> Result<(), MarkError> {
        let Some(guard) = &self.0 else { return Ok(()) };
        let all = MasterSet::all(guard.handle().names.len());
        let (handle, name) = (guard.handle(), guard.resource());
        let raised = insist(guard, || handle.raise_mark(name, (mark, kept), all)).await?;
        raised.map_err(|votes| MarkError::NoQuorum { resource: name.clone(), votes })
    }

    async fn release(mut self) {
        if let Some(guard) = self.0.take() {
            guard.leave().await;
        }
    }
}

impl Drop for Marking {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            guard.forget();
        }
    }
}

/// Reads the mark of the lock's name.
pub(super) async fn reading(guard: &Guard) -> Result<Reading, RunError> {
    let (handle, name) = (guard.handle(), guard.resource());
    let reading = insist(guard, || handle.read_mark(name)).await?;
    guard.check().map_err(|lost| RunError::Lost { lost, output: None })?;
    let no_quorum = |votes| AcquireError::NoQuorum { resource: name.clone(), votes };
    Ok(reading.map_err(no_quorum)?)
}

pub(super) async fn decided(
    guard: Guard,
    reading: &Reading,
    when: When,
    by: Option<Label>,
) -> Decided {
    if let Some(mark) = reading.mark.as_ref().filter(|_| !reading.behind.is_empty()) {
        // Masters that do not accept it get it the next time.
        let (name, kept) = (guard.resource(), when.kept());
        let _ = guard.handle().raise_mark(name, (mark, kept), reading.behind).await;
    }
    match reading.done(when).map(LastRun::from) {
        Some(last) => {
            guard.leave().await;
            Decided::Done(last)
        }
        None => {
            let mark = Mark { at: reading.now, fire: when.fire(), by };
            Decided::Run(OnceGuard { guard, mark, kept: when.kept() })
        }
    }
}

/// Queries masters about a mark until a quorum has answered, at most for as long as the lock is
/// held, and for its TTL. Stops if waiting cannot help.
async fn insist<T, F>(guard: &Guard, ask: impl Fn() -> F) -> Result<Result<T, Votes>, AcquireError>
where
    F: Future<Output = Result<Result<T, Votes>, AcquireError>>,
{
    let handle = guard.handle();
    let until = handle.clock.now().saturating_add(guard.ttl());
    loop {
        match ask().await? {
            Err(votes) if !is_hopeless(&votes) && guard.is_held() && handle.clock.now() < until => {
                sleep(handle.settings.limits.node_timeout()).await;
            }
            answer => return Ok(answer),
        }
    }
}

/// Returns `true` if so many masters report a lasting fault, such as a mark of another type, that
/// no quorum is left.
fn is_hopeless(votes: &Votes) -> bool {
    let lasts =
        |vote: &&NodeVote| matches!(&vote.verdict, Verdict::Unknown(cause) if !cause.is_curable());
    votes.len() - votes.iter().filter(lasts).count() < quorum(votes.len())
}
