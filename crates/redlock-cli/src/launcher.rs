//! The launcher: this program, executed again for a moment in the place of the command.
//!
//! `redlock run` starts `redlock __child PARENT TERMINAL BLOCKED WORD COMMAND...` in its own
//! process group. The launcher arranges for the kernel to kill it when its parent dies, waits for
//! the watchdog, takes the terminal if the command gets it, blocks the signals that were blocked
//! when `redlock run` started, and then executes the command in the same process. Doing this
//! between fork and exec would need `unsafe`.
//!
//! A `redlock run --reentrant` that reuses a lock becomes `redlock __enter KEPT COMMAND...` and
//! then the command. It first blocks the signals that it handles, so that a signal that arrives in
//! between waits and then has its effect on the command.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, anyhow};
use nix::sys::signal::{SigSet, Signal as Blockable};
use rustix::io::FdFlags;
use rustix::process::{getpid, getppid};

use crate::exit::{CANNOT_RUN, Failure, NOT_FOUND};
use crate::held::Held;
use crate::terminal::Terminal;

/// The first word of a command line that is meant for the launcher.
const WORD: &str = "__child";
/// The first word of a command line that reuses a lock.
const ENTER: &str = "__enter";
/// The command gets the terminal immediately.
const FOREGROUND: &str = "foreground";
const BACKGROUND: &str = "background";

/// A command that starts the launcher for `command`, which begins when there is a byte in `word`.
/// Until `word` is dropped, every new process inherits it.
pub(crate) fn command(
    command: &[OsString],
    in_foreground: bool,
    blocked: SigSet,
    word: &PipeReader,
) -> io::Result<Command> {
    rustix::io::fcntl_setfd(word, FdFlags::empty())?;
    let mut launcher = Command::new(this_program());
    launcher.arg(WORD).arg(getpid().to_string());
    launcher.arg(if in_foreground { FOREGROUND } else { BACKGROUND });
    launcher.arg(numbers(blocked)).arg(word.as_raw_fd().to_string());
    launcher.args(command).process_group(0);
    Ok(launcher)
}

/// A launcher for `command`, to be executed in this process's place, that lets these signals come.
pub(crate) fn entering(command: &[OsString], kept: SigSet) -> Command {
    let mut launcher = Command::new(this_program());
    launcher.arg(ENTER).arg(numbers(kept)).args(command);
    launcher
}

/// Returns why no command can be started here, with the fix. It is checked before the lock is
/// requested.
#[cfg(target_os = "linux")]
pub(crate) fn hindrance() -> Option<&'static str> {
    let is_missing = !std::path::Path::new(this_program()).exists();
    is_missing.then_some("redlock run needs /proc, which is missing here; mount it")
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn hindrance() -> Option<&'static str> {
    None
}

/// Linux keeps this name valid when the file is replaced or removed, as in an upgrade.
#[cfg(target_os = "linux")]
pub(crate) fn this_program() -> &'static str {
    "/proc/self/exe"
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn this_program() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "redlock".into())
}

/// Returns `true` if these words are for the launcher; then it does not return unless it fails.
pub(crate) fn is_meant(words: &[OsString]) -> bool {
    words.get(1).is_some_and(|word| word == WORD || word == ENTER)
}

/// Becomes the command.
pub(crate) fn launch(words: &[OsString]) -> ExitCode {
    let Err(failure) = try_launch(words);
    ExitCode::from(failure.report())
}

fn try_launch(words: &[OsString]) -> Result<Infallible, Failure> {
    let mut command = match words {
        [_, word, parent, terminal, blocked, go, program, arguments @ ..] if word == WORD => {
            prepare(parent, terminal, go).map_err(|error| Failure::new(CANNOT_RUN, error))?;
            // Setting a mask fails only for an unknown operation.
            let _ = signals(blocked).thread_block();
            let mut command = Command::new(program);
            command.env(Held::PLACES, Held::places_with_this_command()).args(arguments);
            command
        }
        [_, word, kept, program, arguments @ ..] if word == ENTER => {
            let _ = signals(kept).thread_unblock();
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        _ => {
            let cause = anyhow!("{WORD} and {ENTER} are internal to `redlock run`");
            return Err(Failure::usage(cause));
        }
    };
    let error = command.exec();
    Err(failed(command.get_program(), error))
}

/// Establishes everything that must be true before the command starts.
fn prepare(parent: &OsStr, terminal: &OsStr, go: &OsStr) -> anyhow::Result<()> {
    die_with(parent)?;
    wait_for(go).context("waiting for the watchdog")?;
    if terminal == FOREGROUND
        && let Some(terminal) = Terminal::open()
    {
        terminal.give_to(getpid());
    }
    Ok(())
}

/// Waits until the watchdog knows our group. Before that, the death of `redlock run` would kill
/// only this process, and not its children.
fn wait_for(go: &OsStr) -> anyhow::Result<()> {
    let number: i32 = go.to_string_lossy().parse()?;
    let open = |folder| File::open(format!("{folder}/{number}"));
    let mut word = open("/dev/fd").or_else(|_| open("/proc/self/fd"))?;
    // The command inherits it otherwise.
    nix::unistd::close(number)?;
    word.read_exact(&mut [0]).context("it exited before the command started")
}

/// Signals as a word of the command line: `15,17`.
fn numbers(signals: SigSet) -> String {
    let numbers: Vec<_> = signals.iter().map(|signal| (signal as i32).to_string()).collect();
    numbers.join(",")
}

fn signals(numbers: &OsStr) -> SigSet {
    let numbers = numbers.to_string_lossy();
    let signal = |number: &str| Blockable::try_from(number.parse::<i32>().ok()?).ok();
    numbers.split(',').filter_map(signal).collect()
}

/// Arranges for the kernel to kill this process when its parent dies. The setting survives the
/// execution of the command, unless that changes its user.
fn die_with(parent: &OsStr) -> anyhow::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .context("arranging for the kernel to kill the command if redlock dies")?;
    // The kernel does not report the death of a parent that died before this call.
    let is_alive = getppid().is_some_and(|pid| parent == pid.to_string().as_str());
    is_alive.then_some(()).context("redlock exited before the command started")
}

fn failed(program: &OsStr, error: io::Error) -> Failure {
    let program = program.to_string_lossy();
    if error.kind() == ErrorKind::NotFound {
        let failure = Failure::new(NOT_FOUND, anyhow!("{program}: command not found"));
        match program.contains(char::is_whitespace) {
            true => failure.with_hint("-c needs a shell command: redlock run KEY -c 'COMMAND'"),
            false => failure,
        }
    } else {
        Failure::new(CANNOT_RUN, anyhow!("{program}: cannot be run: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_survive_a_round_trip() {
        for set in [SigSet::empty(), SigSet::from_iter([Blockable::SIGTERM, Blockable::SIGCHLD])] {
            assert_eq!(signals(OsStr::new(&numbers(set))), set);
        }
    }
}
