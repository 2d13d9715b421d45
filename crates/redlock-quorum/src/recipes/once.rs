//! `OnceRequest`: work that is done once a period, or once a fire, by whichever host comes first.
//!
//! It has two parts: the *lease* while the work goes on, so that a host that dies frees it and one
//! that waits does the work instead; and the *mark* of what was completed, which outlives the
//! lease.
//!
//! # States
//!
//! | state | what is asked | then |
//! |---|---|---|
//! | asked for | the lock of the name | held; or the error of the lock, and nothing runs |
//! | held | its mark, of every master | done before: released, nothing runs; else the work runs |
//! | running | nothing: the lock is kept | ended; or lost, and the work is stopped |
//! | ended | every master raises the mark | a quorum has it: released; else left to expire |
//!
//! The mark is read and written under the lock, so of two runs of one name the second reads what
//! the first has written, or finds the lock taken. The mark of the first is on a quorum before its
//! lock is released: if it is not, the lock stays until it expires.
//!
//! # Failures
//!
//! | what fails | what happens |
//! |---|---|
//! | the host dies while the work goes on | the lease expires, no mark: another runs it |
//! | the lock is lost | the work is stopped, no mark |
//! | the work fails (`try_run`), panics, or is dropped | released, no mark |
//! | too few masters answer for the mark | asked again for one TTL; then `NoQuorum`, nothing runs |
//! | too few masters take the mark | the same; then a warning, and the lock is left to expire |
//! | the future is dropped while the mark is written | the lock is left to expire |
//! | a master lost its data | the others have the mark, and it is written back when it is read |
//! | a quorum lost its data, the others are away | the mark is lost: the work may run again |
//! | a clock was ahead when the mark was made | it does not count; a person removes it |

use std::fmt;
use std::future::Future;
use std::time::{Duration, SystemTime};

use redlock_core::{Mark, Resource};
use redlock_protocol::marks::When;

use super::once_guard::{Begun, Decided, decided, reading};
use crate::error::AcquireError;
use crate::guard::{Guard, Hold};
use crate::lock_options::lock_options;
use crate::marks::LastRun;
use crate::redlock::Redlock;
use crate::request::LockRequest;
use crate::run_error::RunError;
use crate::settings::{InvalidRequest, PERIOD_DAYS};

impl Redlock {
    /// Work under `name` that is done once: choose the time with [`within`](OnceRequest::within) or
    /// the [`fire`](OnceRequest::fire), and then [`run`](OnceRequest::run) it. Nothing is sent
    /// before that.
    pub fn once(&self, name: impl Into<Resource>) -> OnceRequest {
        OnceRequest { request: self.lock(name), when: None }
    }

    /// The last run that was completed under `name`; `None` if there is no mark of one. Asks all
    /// masters, and needs no lock.
    ///
    /// # Errors
    /// [`AcquireError::NoQuorum`] when fewer than a quorum of masters that vote have answered.
    pub async fn last_run(
        &self,
        name: impl Into<Resource>,
    ) -> Result<Option<LastRun>, AcquireError> {
        let name = name.into();
        match self.handle.read_mark(&name).await? {
            Ok(reading) => Ok(reading.mark.as_ref().map(LastRun::from)),
            Err(votes) => Err(AcquireError::NoQuorum { resource: name, votes }),
        }
    }

    /// Returns the masters' time: the lower median of the clocks of the voting masters. Reads them
    /// together with the mark of `name`.
    ///
    /// # Errors
    /// As [`last_run`](Self::last_run).
    #[doc(hidden)]
    pub async fn masters_time(&self, name: &Resource) -> Result<SystemTime, AcquireError> {
        match self.handle.read_mark(name).await? {
            Ok(reading) => Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(reading.now)),
            Err(votes) => Err(AcquireError::NoQuorum { resource: name.clone(), votes }),
        }
    }
}

/// The outcome of work that is to be done once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it says whether the work was done here"]
pub enum Once<T> {
    /// It was done here, and this is its output.
    Ran(T),
    /// It was done before.
    Done {
        /// When the last run began, by the masters' clocks.
        at: SystemTime,
        /// Who completed it: the label of its lock, where it had one.
        by: Option<String>,
    },
}

/// Work that is to be done once a period, or once a fire; made by [`Redlock::once`]. The options
/// are those of its lock: see [`LockRequest`].
///
/// Of many hosts that run this at about the same time one does the work, under the lock of the
/// name; the others wait for it, and then find that it was done:
///
/// ```no_run
/// use std::time::Duration;
///
/// use redlock_quorum::{Once, Redlock};
///
/// # async fn example(redlock: Redlock) -> anyhow::Result<()> {
/// const HOUR: Duration = Duration::from_secs(3_600);
/// // A daily report: hosts may come early, so the period is shorter than a day.
/// let report = redlock.once("report").within(12 * HOUR).wait(HOUR);
/// match report.try_run(|_hold| write_report()).await? {
///     Once::Ran(()) => println!("written here"),
///     Once::Done { by, .. } => println!("written by {}", by.unwrap_or_default()),
/// }
/// # Ok(())
/// # }
/// # async fn write_report() -> anyhow::Result<()> { Ok(()) }
/// ```
///
/// Its [`wait`](Self::wait) is how long a host waits for another that does the work. Let it be
/// longer than the TTL and the work together: a host that has stopped waiting is not there to do
/// the work when the one that did it dies. The mark also has its [`label`](Self::label), as the
/// name of who did the work.
///
/// # What it does not give
///
/// It never runs twice *at a time*: that is the lock. It may run twice, *one after the other*:
///
/// * when masters that kept its mark have lost their data, and the others are out of reach, or
///   slower than the node timeout. A mark is written back to masters that lost it whenever the name
///   is asked for;
/// * when its work ends well, and its host dies before a quorum has the mark;
/// * after 32 days, or twice the period where that is longer: marks expire then.
///
/// So work that must never be done twice needs its own check, such as a store that accepts each
/// fire once.
#[must_use = "work that is not run is not done"]
#[derive(Clone)]
pub struct OnceRequest {
    request: LockRequest,
    when: Option<Until>,
}

/// The condition that was given, to be checked when the work is requested.
#[derive(Clone, Copy, Debug)]
enum Until {
    Within(Duration),
    Fire(u64),
}

lock_options!(OnceRequest, request);

impl OnceRequest {
    /// The longest period: ten years.
    pub const PERIOD_MAX: Duration = Duration::from_secs(PERIOD_DAYS * 24 * 3_600);

    /// The largest number of a fire: 2^53 - 1.
    pub const FIRE_MAX: u64 = Mark::END - 1;

    /// Does not run the work if a completed run began less than `period` ago by the masters'
    /// clocks: 1 ms to [`PERIOD_MAX`](Self::PERIOD_MAX).
    ///
    /// Choose it shorter than the time between two runs, such as 12 hours for a daily one: hosts
    /// come a little early or late, and one that comes after 23 hours and 59 minutes is to run.
    pub fn within(self, period: Duration) -> Self {
        Self { when: Some(Until::Within(period)), ..self }
    }

    /// Does not run the work if this fire, or a later one, was completed: 1 to
    /// [`FIRE_MAX`](Self::FIRE_MAX). All hosts must give the same number for one fire: the seconds
    /// since 1970 for which it was planned, or a number of their own that grows.
    ///
    /// Fires that were left out are not made up for.
    pub fn fire(self, fire: u64) -> Self {
        Self { when: Some(Until::Fire(fire)), ..self }
    }

    /// Does the work under the lock of the name, unless it was done before, and marks it as done
    /// when it has ended, whatever its output. When the lock is lost while the work is going on,
    /// the work is dropped where it awaits, and leaves no mark.
    ///
    /// Where too few masters take the mark it is logged, and the lock is left to expire; it never
    /// costs the output.
    ///
    /// # Errors
    /// As [`LockRequest::run`]. `Acquire` also means that too few masters answered what was done
    /// before: the work was not begun.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, releases the lock in the background, and leaves no mark.
    /// If the future is dropped while the mark is written, the lock is left to expire.
    pub async fn run<W, F>(self, work: W) -> Result<Once<F::Output>, RunError<F::Output>>
    where
        W: FnOnce(Hold) -> F,
        F: Future,
    {
        let guard = match self.begin().await.map_err(RunError::without_output)? {
            Begun::Done { at, by } => return Ok(Once::Done { at, by }),
            Begun::Run(guard) => guard,
        };
        let output = guard.work(work).await?;
        guard.end(output).await.map(Once::Ran)
    }

    /// [`run`](Self::run) for work that may fail: it is marked as done if it ended with `Ok`.
    /// Otherwise the lock is released without a mark, so that another does the work again.
    ///
    /// # Errors
    /// The error of the work, and those of [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn try_run<W, F, T, E>(self, work: W) -> Result<Once<T>, E>
    where
        W: FnOnce(Hold) -> F,
        F: Future<Output = Result<T, E>>,
        E: From<RunError<T>>,
    {
        let guard = match self.begin().await.map_err(RunError::without_output)? {
            Begun::Done { at, by } => return Ok(Once::Done { at, by }),
            Begun::Run(guard) => guard,
        };
        match guard.work(work).await {
            Ok(Ok(output)) => Ok(Once::Ran(guard.end(output).await?)),
            Ok(Err(error)) => {
                guard.leave().await;
                Err(error)
            }
            lost => RunError::flat(lost).map(Once::Ran),
        }
    }

    /// The first half of [`run`](Self::run), for work that is no future: it returns the lock if the
    /// work is to be done, and otherwise who has done it.
    /// [`OnceGuard::complete`](crate::OnceGuard::complete) is the second half.
    ///
    /// # Errors
    /// As [`run`](Self::run): there is no lock then.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock in the background.
    pub async fn begin(self) -> Result<Begun, RunError> {
        self.checked()?;
        let guard = self.request.clone().await?;
        self.under(guard).await
    }

    /// The first half of [`run`](Self::run) under a lock that is held already, with the mark of its
    /// resource.
    ///
    /// # Errors
    /// As [`begin`](Self::begin). The lock is released then.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock in the background.
    pub async fn under(self, guard: Guard) -> Result<Begun, RunError> {
        self.decide(guard).await.map(Begun::from)
    }

    /// [`under`](Self::under) that also returns the fire of the last run.
    #[doc(hidden)]
    pub async fn decide(self, guard: Guard) -> Result<Decided, RunError> {
        let (when, by) = (self.checked()?, self.request.checked_label()?);
        match reading(&guard).await {
            Ok(reading) => Ok(decided(guard, &reading, when, by).await),
            Err(error) => {
                guard.leave().await;
                Err(error)
            }
        }
    }

    fn checked(&self) -> Result<When, InvalidRequest> {
        match self.when {
            Some(Until::Within(period)) if period <= Self::PERIOD_MAX => {
                let millis = u64::try_from(period.as_millis()).unwrap_or(0);
                if millis == 0 { Err(InvalidRequest::Period) } else { Ok(When::Within(millis)) }
            }
            Some(Until::Fire(fire)) if (1..=Self::FIRE_MAX).contains(&fire) => Ok(When::Fire(fire)),
            Some(Until::Within(_)) => Err(InvalidRequest::Period),
            Some(Until::Fire(_)) => Err(InvalidRequest::Fire),
            None => Err(InvalidRequest::NeitherPeriodNorFire),
        }
    }
}

impl fmt::Debug for OnceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceRequest")
            .field("request", &self.request)
            .field("when", &self.when)
            .finish()
    }
}
