//! Work that can fail: one `?` for the lock and the work.

use redlock_quorum::{AcquireError, LockRequest, LostReason, Redlock, RunError};
use tokio::time::sleep;

use crate::arena::{RESOURCE, TTL, full, masters, ms, until_free};

/// A program's error type for everything that can fail.
#[derive(Debug)]
enum Wrong {
    Lock(RunError<u32>),
    Work,
}

impl From<RunError<u32>> for Wrong {
    fn from(error: RunError<u32>) -> Self {
        Self::Lock(error)
    }
}

fn lock(redlock: &Redlock) -> LockRequest {
    redlock.try_lock(RESOURCE).min_copies(3).auto_extend(false)
}

#[tokio::test(start_paused = true)]
async fn try_run_returns_output_or_error_and_releases() {
    let (masters, redlock) = masters(3);
    let done: Result<u32, Wrong> = lock(&redlock).try_run(async |_| Ok(7)).await;
    assert_eq!(done.unwrap(), 7);
    until_free(&masters, ms(5)).await;
    let failed: Result<u32, Wrong> = lock(&redlock).try_run(async |_| Err(Wrong::Work)).await;
    assert!(matches!(failed, Err(Wrong::Work)), "{failed:?}");
    until_free(&masters, ms(5)).await;
}

#[tokio::test(start_paused = true)]
async fn lock_errors_are_converted_to_the_works_error_type() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    let refused: Result<u32, Wrong> = lock(&redlock).try_run(async |_| Ok(7)).await;
    assert!(
        matches!(refused, Err(Wrong::Lock(RunError::Acquire(AcquireError::Held { .. })))),
        "{refused:?}"
    );
    guard.release().await.unwrap();
    let work = async |_| {
        sleep(TTL * 60).await;
        Ok(7)
    };
    let lost: Result<u32, Wrong> = lock(&redlock).try_run(work).await;
    let Err(Wrong::Lock(RunError::Lost { lost, output: None })) = lost else { panic!("{lost:?}") };
    assert_eq!(lost.reason, LostReason::NotExtended);
}

/// The error that most programs have.
#[tokio::test(start_paused = true)]
async fn one_question_mark_is_enough_for_the_lock_and_the_work() {
    async fn digits(redlock: &Redlock, text: &str) -> anyhow::Result<u32> {
        let number = redlock
            .lock(RESOURCE)
            .try_run(async |_| text.parse().map_err(anyhow::Error::from))
            .await?;
        Ok(number)
    }
    let (_masters, redlock) = masters(3);
    assert_eq!(digits(&redlock, "7").await.unwrap(), 7);
    assert!(digits(&redlock, "seven").await.unwrap_err().is::<std::num::ParseIntError>());
}
