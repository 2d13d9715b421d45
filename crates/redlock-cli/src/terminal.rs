//! `Terminal`: which process group is in the foreground.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, SigmaskHow, Signal as Blockable};
use rustix::process::{Pid, Signal, getpgrp, kill_current_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal that this process was started on, and the group it was started in.
pub(crate) struct Terminal {
    tty: File,
    own_group: Pid,
}

impl Terminal {
    /// Returns `None` without a terminal, as in a cron job.
    pub(crate) fn open() -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { tty, own_group: getpgrp() })
    }

    /// Returns `true` if `group` receives the terminal's input.
    fn is_foreground(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|foreground| foreground == group)
    }

    /// Returns `true` if this process is in the foreground, and so has the terminal to give.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_foreground(self.own_group)
    }

    /// Returns `true` if the command should have the terminal from its start. If stdout is a pipe,
    /// its reader (a pager, for example) may read the terminal in our own group. In that case the
    /// command gets the terminal when it needs it.
    pub(crate) fn is_for_the_command(&self) -> bool {
        self.is_ours() && io::stdout().is_terminal()
    }

    /// Puts `group` into the foreground.
    pub(crate) fn give_to(&self, group: Pid) {
        // If the group is gone or the terminal was hung up, there is nothing to do. A background
        // process that calls this is stopped, unless it blocks SIGTTOU.
        let _ = with_mask(SigmaskHow::SIG_BLOCK, || tcsetpgrp(&self.tty, group));
    }

    /// Puts our own group into the foreground again, if `group` has been there.
    pub(crate) fn take_back_from(&self, group: Pid) {
        if self.is_foreground(group) {
            self.give_to(self.own_group);
        }
    }

    /// Stops this process's whole group, as the terminal stops a job of a shell, and returns when
    /// it continues. The kernel does not stop it if no shell could continue it.
    pub(crate) fn stop_our_job(&self) {
        // By default, this signal stops a process. SIGTSTP has our own handler, and SIGSTOP
        // would stop a group that no process continues. The call returns after the stop, because a
        // signal to its own process is delivered to the calling thread first.
        with_mask(SigmaskHow::SIG_UNBLOCK, || {
            let _ = kill_current_process_group(Signal::TTOU);
        });
    }
}

/// Does something while SIGTTOU is blocked or unblocked. Restores the mask, because a command
/// inherits it.
fn with_mask<T>(how: SigmaskHow, action: impl FnOnce() -> T) -> T {
    let changed = SigSet::from(Blockable::SIGTTOU).thread_swap_mask(how);
    let outcome = action();
    if let Ok(before) = changed {
        // Setting a mask that was in force before cannot fail.
        let _ = before.thread_set_mask();
    }
    outcome
}
