//! `Delays`: how late a thread of this process gets a processor.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Measures by how much a thread that sleeps again and again wakes up late: because other threads
/// have the processors, or because the whole test run is stopped.
///
/// A test that bounds how long some processes take subtracts these delays. So the bound stays tight
/// on an idle machine, and a busy one does not break it. The thread ends when this is dropped.
#[derive(Debug)]
pub struct Delays(Arc<Mutex<Vec<Duration>>>);

impl Delays {
    /// Starts to measure.
    pub fn watch() -> Self {
        let seen = Arc::<Mutex<Vec<Duration>>>::default();
        let measured = Arc::downgrade(&seen);
        thread::spawn(move || {
            while let Some(seen) = measured.upgrade() {
                let began = Instant::now();
                thread::sleep(TICK);
                let late = began.elapsed().saturating_sub(TICK);
                if late > NOISE {
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(late);
                }
            }
        });
        Self(seen)
    }

    /// Returns the sum of all delays since the start.
    pub fn sum(&self) -> Duration {
        self.seen(|delays| delays.iter().sum())
    }

    /// Returns how many delays since the start were longer than this.
    pub fn longer_than(&self, limit: Duration) -> usize {
        self.seen(|delays| delays.iter().filter(|delay| **delay > limit).count())
    }

    fn seen<T>(&self, read: impl FnOnce(&[Duration]) -> T) -> T {
        read(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

const TICK: Duration = Duration::from_millis(5);
/// An idle machine wakes threads up so much later.
const NOISE: Duration = Duration::from_millis(2);
