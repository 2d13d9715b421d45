//! `Clock` and its `Instant`: the one source of time for deadlines. See rule T1 of
//! `docs/PROTOCOL.md`.

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
    /// The instant at which the clock was made. No clock shows an earlier one.
    pub const ORIGIN: Self = Self(0);

    /// Creates the instant `nanos` nanoseconds after the clock was made.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock was made.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the instant `by` later, or the largest instant if that overflows.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// Returns the instant `by` earlier, or the origin if there is none so early.
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
/// [`Clock::system`] advances by the larger advance of `CLOCK_BOOTTIME` (which includes the time a
/// machine is suspended) and `CLOCK_MONOTONIC_RAW` (which no time daemon slews), so it errs only
/// towards "expired". On systems without these clocks it is [`std::time::Instant`].
/// [`Clock::paused`] follows tokio's clock, for tests in virtual time.
///
/// It cannot detect a virtual machine that its host stopped. Its clocks stop with it.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System(Arc<System>),
    #[cfg(feature = "redis")]
    Tokio(Arc<Tokio>),
}

/// Tokio's clock, and what was added to it.
#[cfg(feature = "redis")]
struct Tokio {
    origin: tokio::time::Instant,
    suspended: AtomicU64,
}

impl Clock {
    /// Creates a clock of the system.
    pub fn system() -> Self {
        Self(Source::System(Arc::new(System::start())))
    }

    /// Creates a clock that follows tokio's clock, so that it stops and jumps with
    /// `tokio::time::pause` and `advance`. For tests only, because it does not include suspended
    /// time.
    ///
    /// Make and read it inside the runtime whose time it follows.
    #[cfg(feature = "redis")]
    pub fn paused() -> Self {
        let (origin, suspended) = (tokio::time::Instant::now(), AtomicU64::new(0));
        Self(Source::Tokio(Arc::new(Tokio { origin, suspended })))
    }

    /// Advances this clock and its clones by `time`, as if the machine had been suspended for so
    /// long. The timers of a runtime do not advance, as in a real suspension. For tests only.
    pub fn suspend(&self, time: Duration) {
        let gained = match &self.0 {
            Source::System(system) => &system.ratchet.gained,
            #[cfg(feature = "redis")]
            Source::Tokio(tokio) => &tokio.suspended,
        };
        gained.fetch_add(nanos(time), Ordering::AcqRel);
    }

    /// Returns the current instant. Costs two reads of the vDSO (about 60 ns) and no system call.
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System(system) => Instant(system.now()),
            #[cfg(feature = "redis")]
            Source::Tokio(tokio) => {
                Instant(nanos(tokio.origin.elapsed()) + tokio.suspended.load(Ordering::Acquire))
            }
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.0 {
            Source::System(_) => "system",
            #[cfg(feature = "redis")]
            Source::Tokio(_) => "paused",
        };
        write!(f, "Clock({kind})")
    }
}

/// `Duration` in nanoseconds; 584 years and more are all treated as "no limit".
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The system's clocks, as one.
struct System {
    /// The raw clock when this was made.
    origin: u64,
    ratchet: Ratchet,
}

impl System {
    fn start() -> Self {
        let (origin, lead) = Bounds::tight(Reading::take);
        Self { origin, ratchet: Ratchet { lead: AtomicI64::new(lead), ..Ratchet::default() } }
    }

    fn now(&self) -> u64 {
        self.ratchet.advance(Reading::take).saturating_sub(self.origin)
    }
}

/// One reading of both clocks, in nanoseconds: first the boot clock, then the raw one.
struct Reading {
    boot: u64,
    raw: u64,
}

/// Returns how far `boot` is ahead of `raw`.
fn lead(boot: u64, raw: u64) -> i64 {
    boot.wrapping_sub(raw).cast_signed()
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

/// Between which values the lead of the boot clock over the raw one lies, however long the reader
/// was stopped between its reads.
struct Bounds {
    least: i64,
    most: i64,
    /// The latest reading of the raw clock.
    raw: u64,
}

impl Bounds {
    /// Reads the boot clock between two reads of the raw clock.
    fn take(mut read: impl FnMut() -> Reading) -> Self {
        let (before, now) = (read(), read());
        Self { least: lead(now.boot, now.raw), most: lead(now.boot, before.raw), raw: now.raw }
    }

    /// Returns the raw clock, and a lead that is exact unless the reader was stopped repeatedly.
    fn tight(read: impl Fn() -> Reading) -> (u64, i64) {
        let tries = (0..16).map(|_| Self::take(&read));
        let tightest = tries.min_by_key(|bounds| bounds.most.saturating_sub(bounds.least));
        // There are sixteen of them.
        tightest.map_or((0, 0), |bounds| (bounds.raw, bounds.least))
    }
}

/// Adds to the raw clock whatever the boot clock gained on it, and never takes it back.
///
/// Taking the larger of the two totals is not enough: a raw clock ten seconds ahead after a month
/// would hide a five-second suspension. So each gain is added as it happens, but only as far as
/// both bounds show it. Otherwise readers that are stopped between their reads would drive the
/// clock. Gains below [`Ratchet::NOISE`] are left for later.
#[derive(Default)]
struct Ratchet {
    /// The sum of all gains of the boot clock, in nanoseconds.
    gained: AtomicU64,
    /// The boot clock minus the raw clock when that sum last changed.
    lead: AtomicI64,
    /// Held while the two above change.
    gate: Mutex<()>,
}

impl Ratchet {
    /// A twentieth of the two milliseconds that the protocol sets aside for clock granularity.
    const NOISE: i64 = 100_000;

    /// Reads the clocks once; more often only when the lead seems to have changed.
    fn advance(&self, mut read: impl FnMut() -> Reading) -> u64 {
        let Reading { boot, mut raw } = read();
        if self.gain(lead(boot, raw)).abs() > Self::NOISE {
            raw = self.read_again(read);
        }
        raw.saturating_add(self.gained.load(Ordering::Acquire))
    }

    fn gain(&self, lead: i64) -> i64 {
        lead.saturating_sub(self.lead.load(Ordering::Acquire))
    }

    /// Reads the clocks again, so that no reading is older than the value it is compared with. The
    /// sum grows before the lead changes, and a reader that sees the old lead waits here. So a
    /// returned time always includes every gain noticed so far.
    fn read_again(&self, read: impl FnMut() -> Reading) -> u64 {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let Bounds { least, most, raw } = Bounds::take(read);
        if self.gain(least) > Self::NOISE {
            self.gained.fetch_add(self.gain(least).cast_unsigned(), Ordering::AcqRel);
            self.lead.store(least, Ordering::Release);
        } else if self.gain(most) < -Self::NOISE {
            self.lead.store(most, Ordering::Release);
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Advances the clock by a reading on which all reads agree.
    fn advance(ratchet: &Ratchet, boot: u64, raw: u64) -> u64 {
        ratchet.advance(|| Reading { boot, raw })
    }

    #[test]
    fn suspension_is_added_even_if_the_raw_clock_is_far_ahead() {
        let ratchet = Ratchet::default();
        let before = advance(&ratchet, 100 * SECOND, 110 * SECOND);
        let after = advance(&ratchet, 106 * SECOND, 111 * SECOND);
        assert_eq!(after - before, 6 * SECOND);
    }

    #[test]
    fn a_slewed_boot_clock_never_slows_the_raw_one() {
        let ratchet = Ratchet::default();
        let before = advance(&ratchet, 100 * SECOND, 100 * SECOND);
        let after = advance(&ratchet, 100 * SECOND + SECOND / 2, 101 * SECOND);
        assert_eq!(after - before, SECOND);
    }

    #[test]
    fn fast_boot_clock_is_followed() {
        let ratchet = Ratchet::default();
        let mut last = 0;
        for step in 1..=100 {
            last = advance(&ratchet, step * SECOND + step * SECOND / 20, step * SECOND);
        }
        assert!(last >= 105 * SECOND - Ratchet::NOISE.cast_unsigned(), "{last}");
    }

    #[test]
    fn jitter_between_two_reads_does_not_add_up() {
        let ratchet = Ratchet::default();
        for step in 0..1_000_000_u64 {
            let jitter = if step % 2 == 0 { 90_000 } else { 0 };
            let now = advance(&ratchet, step * 1_000 + jitter, step * 1_000);
            assert_eq!(now, step * 1_000);
        }
    }

    /// A machine that may stop a reader before each of its reads, and may be suspended at that
    /// point. A time daemon slows its boot clock down.
    struct Machine {
        rng: StdRng,
        awake: u64,
        slewed: u64,
        suspended: u64,
        suspends: bool,
    }

    impl Machine {
        fn reading(&mut self) -> Reading {
            self.pass();
            let boot = self.awake + self.suspended - self.slewed;
            self.pass();
            Reading { boot, raw: self.awake }
        }

        fn pass(&mut self) {
            self.awake += match self.rng.random_range(0..20) {
                0 => self.rng.random_range(0..50_000_000),
                _ => 30,
            };
            if self.rng.random_range(0..50) == 0 {
                self.slewed += 200_000;
            }
            if self.suspends && self.rng.random_range(0..100) == 0 {
                self.suspended += SECOND;
            }
        }
    }

    #[test]
    fn readers_stopped_between_two_reads_do_not_add_up() {
        for (seed, suspends) in [(1, false), (2, false), (3, true), (4, true)] {
            let rng = StdRng::seed_from_u64(seed);
            let mut machine =
                Machine { rng, awake: 10 * SECOND, slewed: 0, suspended: 0, suspends };
            let (ratchet, mut gained) = (Ratchet::default(), 0);
            for _ in 0..10_000 {
                let now = ratchet.advance(|| machine.reading());
                gained = now - machine.awake;
                assert!(gained <= machine.suspended, "seed {seed}: {gained} too much");
            }
            // The last reads may have been stopped, or suspended in between.
            let least = machine.suspended.saturating_sub(3 * SECOND);
            assert!(gained >= least, "seed {seed}: {gained} of {}", machine.suspended);
        }
    }

    #[test]
    fn spinning_readers_do_not_drive_the_clock() {
        let (begun, clock) = (std::time::Instant::now(), Clock::system());
        let spin = || while clock.now().as_nanos() < SECOND / 5 {};
        std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(spin))));
        let (ours, theirs) = (clock.now().saturating_since(Instant::ORIGIN), begun.elapsed());
        assert!(ours < theirs + Duration::from_millis(10), "{ours:?} shown for {theirs:?}");
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

    #[tokio::test(start_paused = true)]
    async fn clones_show_a_suspension_and_tokio_does_not() {
        for clock in [Clock::paused(), Clock::system()] {
            let (begun, before, clone) = (tokio::time::Instant::now(), clock.now(), clock.clone());
            clock.suspend(Duration::from_secs(3600));
            assert!(clone.now().saturating_since(before) >= Duration::from_secs(3600));
            assert_eq!(begun.elapsed(), Duration::ZERO);
        }
    }
}
