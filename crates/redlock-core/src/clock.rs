//! `Clock` and its `Instant`: the one source of time for deadlines.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A moment on a [`Clock`], in nanoseconds since that clock was made.
///
/// Instants of different clocks must not be compared: they do not share an origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The moment at which the clock was made; no clock shows anything earlier.
    pub const ORIGIN: Self = Self(0);

    /// The instant that lies `nanos` nanoseconds after the clock was made.
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock was made.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long `self` lies after `earlier`; zero when it does not.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The instant `by` later; the largest one when there is none so late.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// The instant `by` earlier; the origin when there is none so early.
    #[must_use]
    pub fn saturating_sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// A clock that never runs slower than any of the clocks a lease could be measured by.
///
/// [`Clock::system`] advances by the larger advance of `CLOCK_BOOTTIME` (which counts the time a
/// machine is suspended) and `CLOCK_MONOTONIC_RAW` (which no time daemon slews), so it errs only
/// towards "expired". Where these clocks do not exist it is [`std::time::Instant`].
/// [`Clock::paused`] follows tokio's clock, for tests in virtual time.
///
/// What it cannot see: a virtual machine that its host stopped. Its clocks stop with it.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System(Arc<System>),
    Tokio(tokio::time::Instant),
}

impl Clock {
    /// The clock for real use.
    pub fn system() -> Self {
        Self(Source::System(Arc::new(System::start())))
    }

    /// A clock that shows what tokio's clock shows, so that it stands still and jumps with
    /// `tokio::time::pause` and `advance`. For tests only: it does not count suspended time.
    ///
    /// Make and read it inside the runtime whose time it shall follow.
    pub fn paused() -> Self {
        Self(Source::Tokio(tokio::time::Instant::now()))
    }

    /// The present instant. Costs two reads of the vDSO (about 60 ns) and no system call.
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System(system) => Instant(system.now()),
            Source::Tokio(origin) => Instant(nanos(origin.elapsed())),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.0 {
            Source::System(_) => "system",
            Source::Tokio(_) => "paused",
        };
        write!(f, "Clock({kind})")
    }
}

/// `Duration` in nanoseconds; 584 years and more are all "as far as we can say".
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The system's clocks, read together.
struct System {
    origin: Reading,
    ratchet: Ratchet,
}

impl System {
    fn start() -> Self {
        Self { origin: Reading::take(), ratchet: Ratchet::default() }
    }

    fn now(&self) -> u64 {
        let now = Reading::take();
        self.ratchet.advance(
            now.boot.saturating_sub(self.origin.boot),
            now.raw.saturating_sub(self.origin.raw),
        )
    }
}

/// One reading of both clocks, in nanoseconds.
struct Reading {
    boot: u64,
    raw: u64,
}

impl Reading {
    #[cfg(target_os = "linux")]
    fn take() -> Self {
        use rustix::time::{ClockId, Timespec, clock_gettime};
        fn since_boot(at: Timespec) -> u64 {
            // Neither clock is ever negative: both count from the machine's start.
            at.tv_sec.cast_unsigned() * 1_000_000_000 + at.tv_nsec.cast_unsigned()
        }
        Self {
            boot: since_boot(clock_gettime(ClockId::Boottime)),
            raw: since_boot(clock_gettime(ClockId::MonotonicRaw)),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn take() -> Self {
        use std::sync::LazyLock;
        static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        let since = nanos(START.elapsed());
        Self { boot: since, raw: since }
    }
}

/// Adds to the raw clock whatever the boot clock gained on it, and never takes it back.
///
/// The larger of two totals is not enough: a raw clock that has drifted ten seconds ahead in a
/// month would hide a suspension of five. So each gain counts when it happens. Gains below
/// [`Ratchet::NOISE`] are left for later, or the jitter between two reads would add up.
#[derive(Default)]
struct Ratchet {
    /// The sum of all gains of the boot clock, in nanoseconds.
    gained: AtomicU64,
    /// Where the boot clock stood against the raw one when that sum last changed.
    lead: AtomicI64,
    /// Held while the two above change.
    turn: Mutex<()>,
}

impl Ratchet {
    /// A twentieth of the two milliseconds that the protocol sets aside for clock granularity.
    const NOISE: i64 = 100_000;

    fn advance(&self, boot: u64, raw: u64) -> u64 {
        let lead = boot.wrapping_sub(raw).cast_signed();
        if self.moved(lead) {
            self.turn(lead);
        }
        raw.saturating_add(self.gained.load(Ordering::Acquire))
    }

    fn moved(&self, lead: i64) -> bool {
        lead.saturating_sub(self.lead.load(Ordering::Acquire)).abs() > Self::NOISE
    }

    /// The sum grows before the lead changes, and who sees the old lead waits here: nobody reads
    /// a time from which a gain that was noticed is missing.
    fn turn(&self, lead: i64) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let gain = lead.saturating_sub(self.lead.load(Ordering::Acquire));
        if gain.abs() > Self::NOISE {
            self.gained.fetch_add(gain.max(0).cast_unsigned(), Ordering::AcqRel);
            self.lead.store(lead, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_suspension_counts_even_when_the_raw_clock_is_far_ahead() {
        let ratchet = Ratchet::default();
        let before = ratchet.advance(100 * SECOND, 110 * SECOND);
        let after = ratchet.advance(106 * SECOND, 111 * SECOND);
        assert_eq!(after - before, 6 * SECOND);
    }

    #[test]
    fn a_slewed_boot_clock_never_slows_the_raw_one() {
        let ratchet = Ratchet::default();
        let before = ratchet.advance(100 * SECOND, 100 * SECOND);
        let after = ratchet.advance(100 * SECOND + SECOND / 2, 101 * SECOND);
        assert_eq!(after - before, SECOND);
    }

    #[test]
    fn a_boot_clock_that_runs_fast_is_followed() {
        let ratchet = Ratchet::default();
        let mut last = 0;
        for step in 1..=100 {
            last = ratchet.advance(step * SECOND + step * SECOND / 20, step * SECOND);
        }
        assert!(last >= 105 * SECOND - Ratchet::NOISE.cast_unsigned(), "{last}");
    }

    #[test]
    fn jitter_between_two_reads_does_not_add_up() {
        let ratchet = Ratchet::default();
        for step in 0..1_000_000_u64 {
            let jitter = if step % 2 == 0 { 90_000 } else { 0 };
            let now = ratchet.advance(step * 1_000 + jitter, step * 1_000);
            assert_eq!(now, step * 1_000);
        }
    }

    #[test]
    fn the_system_clock_advances_with_the_machine() {
        let clock = Clock::system();
        let (ours, theirs) = (clock.now(), std::time::Instant::now());
        while theirs.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        assert!(clock.now().saturating_since(ours) >= Duration::from_millis(20));
    }

    #[tokio::test(start_paused = true)]
    async fn the_paused_clock_moves_with_tokio_only() {
        let clock = Clock::paused();
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(clock.now().saturating_since(before), Duration::from_secs(3600));
    }
}
