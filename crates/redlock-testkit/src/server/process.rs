//! A child process that does not outlive us, and is signalled only while it is ours.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::options::on_path;

/// A process of ours, killed and waited for on drop.
///
/// Only this value waits for the process, so until it has done so the process id cannot belong to
/// another process, and a signal cannot hit a stranger.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Starts a process from a command made by [`dying_with_us`].
    pub(super) fn spawn(command: Command) -> anyhow::Result<Self> {
        let (answer, answered) = mpsc::channel();
        spawner().send((command, answer)).ok().context(SPAWNER_GONE)?;
        let child = answered.recv().context(SPAWNER_GONE)?;
        Ok(Self(child.context("spawning the server's process")?))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns how the process ended, if it did.
    pub(super) fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    pub(super) fn has_exited(&mut self) -> bool {
        // An error means that there is no such child, so it has exited.
        !matches!(self.exit_status(), Ok(None))
    }

    /// Returns `true` if every thread of the process has stopped.
    ///
    /// The kernel reports a child as stopped after the last of its threads has stopped. The report
    /// is not consumed, so it is valid until the process continues.
    pub(super) fn is_paused(&self) -> bool {
        let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let child = WaitId::Pid(Pid::from_child(&self.0));
        matches!(waitid(child, look), Ok(Some(status)) if status.stopped())
    }

    /// Pauses the process, and waits until it has stopped.
    pub(super) fn pause(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        let deadline = Instant::now() + PAUSE_PATIENCE;
        while !self.is_paused() {
            if self.has_exited() {
                bail!("the process ended instead of stopping");
            }
            if Instant::now() > deadline {
                bail!("the process runs on {PAUSE_PATIENCE:?} after SIGSTOP");
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    pub(super) fn resume(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Terminates the process and waits until it has exited. Kills it if that takes too long.
    pub(super) fn terminate(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        // A paused process handles the signal only after it continues.
        self.signal(Signal::CONT)?;
        let deadline = Instant::now() + TERMINATE_PATIENCE;
        while self.exit_status()?.is_none() {
            if Instant::now() > deadline {
                bail!("it was killed, {TERMINATE_PATIENCE:?} after SIGTERM");
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        if self.exit_status()?.is_none() {
            kill_process(Pid::from_child(&self.0), signal)?;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has already exited. SIGKILL also ends a paused process.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates a command that runs `binary` so that the kernel kills it when this process dies, if
/// possible.
///
/// `setpriv` requests SIGKILL at the death of its parent and then executes the binary in its own
/// process, so the process id is the server's. (If the parent is killed just before that request,
/// the child survives.)
pub(super) fn dying_with_us(binary: &Path) -> Command {
    let mut command = match setpriv() {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(binary);
            command
        }
        None => Command::new(binary),
    };
    command.stdin(Stdio::null());
    command
}

/// Returns `setpriv` if it supports the death signal (util-linux 2.33 or newer).
fn setpriv() -> Option<&'static Path> {
    static SETPRIV: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let setpriv = on_path(OsStr::new("setpriv"))?;
        let mut trial = Command::new(&setpriv);
        trial.args(["--pdeathsig", "KILL", "--"]).arg(&setpriv).arg("--version");
        let output = trial.stdin(Stdio::null()).output().ok()?;
        output.status.success().then_some(setpriv)
    };
    SETPRIV.get_or_init(find).as_deref()
}

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// The thread that starts all processes.
///
/// To the kernel the parent that must not die is the *thread* that forked, not its process: a
/// server started by a test's helper thread would be killed when that thread ends, in the middle of
/// the test. This thread is never joined and waits for orders until the whole process ends, in
/// whatever way, and then the servers end as well, those in statics included.
fn spawner() -> &'static mpsc::Sender<Order> {
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in orders {
                // The caller no longer waits, so the child must be killed.
                if let Err(mpsc::SendError(Ok(child))) = answer.send(command.spawn()) {
                    drop(Process(child));
                }
            }
        });
        sender
    })
}

const SPAWNER_GONE: &str = "the thread that starts servers is gone";
const POLL_INTERVAL: Duration = Duration::from_millis(2);
const PAUSE_PATIENCE: Duration = Duration::from_secs(5);
// A server waits up to 10 s for slow replicas.
const TERMINATE_PATIENCE: Duration = Duration::from_secs(15);
