//! `Signals`: signals to this process, and events of its child.

use std::fs;
use std::io;
use std::task::Poll;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as Blockable};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// Requests to exit, and signals that only the command understands. They are passed on to it.
const PASSED_ON: [(Signal, &str); 6] = [
    (Signal::INT, "SIGINT"),
    (Signal::TERM, "SIGTERM"),
    (Signal::HUP, "SIGHUP"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::USR1, "SIGUSR1"),
    (Signal::USR2, "SIGUSR2"),
];

/// The signals that this process listens to. From then on they no longer end it.
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// A bit for each signal that was ignored when this process began.
    ignored: u64,
    blocked: SigSet,
}

impl Signals {
    /// Handles the signals that are passed on. Signals that were ignored when this process started
    /// (by `nohup`, or by a shell for a background job) stay ignored, and the command inherits
    /// that.
    ///
    /// SIGPIPE is the exception: the command always gets its default action. Rust's start-up code
    /// ignores it before `main`, and no file of `/proc` keeps the previous setting. Reading it
    /// earlier needs code that runs before `main`, which needs `unsafe`, or a start-up without that
    /// change, which needs an unstable compiler flag. The parent's own setting is no substitute:
    /// Python ignores SIGPIPE itself and restores it for its children.
    pub(crate) fn new() -> io::Result<Self> {
        let mut signals =
            Self { streams: Vec::new(), ignored: ignored(), blocked: SigSet::empty() };
        for (signal, _) in PASSED_ON {
            signals.listen_unless_ignored(signal)?;
        }
        Ok(signals)
    }

    /// Listens to one more, unless it was ignored when this process began.
    pub(crate) fn listen_unless_ignored(&mut self, wanted: Signal) -> io::Result<()> {
        let is_ignored = self.ignored & 1 << (wanted.as_raw() - 1) != 0;
        if is_ignored { Ok(()) } else { self.listen_to(wanted) }
    }

    /// Handles one more signal. A process inherits blocked signals, and if a supervisor has blocked
    /// this one, it would never arrive.
    pub(crate) fn listen_to(&mut self, wanted: Signal) -> io::Result<()> {
        let stream = signal(SignalKind::from_raw(wanted.as_raw()))?;
        self.streams.push((wanted, stream));
        let wanted = Blockable::try_from(wanted.as_raw())?;
        if SigSet::thread_get_mask()?.contains(wanted) {
            self.blocked.add(wanted);
            SigSet::from(wanted).thread_unblock()?;
        }
        Ok(())
    }

    /// Those of them that were blocked when this process began, which the command inherits.
    pub(crate) fn blocked(&self) -> SigSet {
        self.blocked
    }

    /// Blocks the signals that this process handles. Returns the signals that the next program in
    /// this process has to unblock. The others were blocked when this process started.
    pub(crate) fn keep_back(&self) -> io::Result<SigSet> {
        let mut kept = SigSet::empty();
        for (signal, _) in &self.streams {
            kept.add(Blockable::try_from(signal.as_raw())?);
        }
        kept.thread_block()?;
        Ok(kept.iter().filter(|signal| !self.blocked.contains(*signal)).collect())
    }

    /// A signal that has come.
    pub(crate) async fn come(&mut self) -> Option<Signal> {
        // The runtime gets to look for signals only while something is awaited.
        tokio::time::timeout(Duration::from_millis(1), self.next()).await.ok()
    }

    /// The next signal. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Returns the common name of a signal that is passed on.
pub(crate) fn name(signal: Signal) -> &'static str {
    let known = PASSED_ON.iter().find(|(passed_on, _)| *passed_on == signal);
    match signal {
        Signal::KILL => "SIGKILL",
        Signal::STOP => "SIGSTOP",
        Signal::CONT => "SIGCONT",
        _ => known.map_or("a signal", |(_, name)| name),
    }
}

/// Returns the signals that this process ignores, one bit each. Zero if the system does not show
/// them.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
