//! Waiting, always with a deadline.

use std::future::Future;
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

/// How long a test waits for an event that must come: longer than any step takes on a busy machine,
/// so a longer wait is a failure.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How long a test waits for what must not come.
const NEVER: Duration = Duration::from_millis(300);
/// Most tests query a server each time, over a new connection. A shorter interval takes the
/// processor from the measured code.
const INTERVAL: Duration = Duration::from_millis(5);

/// Returns a duration in milliseconds.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns a duration in seconds.
pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Waits for what must come.
///
/// # Panics
/// When it does not come within [`PATIENCE`].
pub async fn in_time<F: Future>(future: F) -> F::Output {
    let ended = timeout(PATIENCE, future).await;
    ended.unwrap_or_else(|_| panic!("it does not come within {PATIENCE:?}"))
}

/// Waits until something is so.
///
/// # Panics
/// With `what`, when it is not so within [`PATIENCE`].
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        sleep(INTERVAL).await;
    }
}

/// Checks for 300 ms that something does not become true. Only waiting can show that.
///
/// # Panics
/// Panics with `what` if it becomes true.
pub async fn never(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + NEVER;
    while tokio::time::Instant::now() < end {
        assert!(!is_so(), "{what}");
        sleep(INTERVAL).await;
    }
}

/// Calls `look` until it returns a value. It blocks its thread: for tests outside of a runtime.
///
/// # Panics
/// With `what`, when `look` returns no value within [`PATIENCE`].
pub fn poll<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(INTERVAL);
    }
}
