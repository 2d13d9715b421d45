//! `run` on a terminal: who is in the foreground, and what Ctrl-C and Ctrl-Z do.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redlock_testkit::RedisServers;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::signals::watchdog_of;
use crate::support::{
    Scratch, Stalls, copies, is_alive, is_stopped, poll, redlock, send, undisturbed,
    waited_for_processor,
};

/// A command on its own terminal, and the text on that terminal.
pub(crate) struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    child: Child,
}

impl Terminal {
    /// `setsid --ctty` of util-linux makes this the command's controlling terminal.
    pub(crate) fn start(command: &Command) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let tty = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let side = || Stdio::from(tty.try_clone().unwrap());
        let mut session = undisturbed("setsid");
        session.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        session.stdin(side()).stdout(side()).stderr(side());
        let child = session.spawn().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        watch(keyboard.try_clone().unwrap(), screen.clone());
        Self { keyboard: keyboard.into(), screen, child }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this text is on the screen, and returns the rest of its line.
    pub(crate) fn shows(&self, text: &str) -> String {
        poll(&format!("the terminal shows {text:?}"), || {
            let screen = self.screen.lock().unwrap();
            let (_, rest) = screen.split_once(text)?;
            rest.split_once("\r\n").map(|(line, _)| line.to_owned())
        })
    }

    /// Returns all output after the command has exited.
    fn all(mut self) -> String {
        poll("the command ends", || self.child.try_wait().unwrap());
        // The other owner reads until the end of the session.
        poll("all is read", || (Arc::strong_count(&self.screen) == 1).then_some(()));
        self.screen.lock().unwrap().clone()
    }

    pub(crate) fn code(mut self) -> i32 {
        poll("the command ends", || self.child.try_wait().unwrap()).code().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watch(keyboard: OwnedFd, screen: Arc<Mutex<String>>) {
    thread::spawn(move || {
        let mut terminal = File::from(keyboard);
        let mut bytes = [0; 1024];
        // The end of the session is an error of this end of its terminal.
        while let Ok(read @ 1..) = terminal.read(&mut bytes) {
            screen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    });
}

/// A shell with job control that runs `script`, in which `$R` is the command.
fn shell(servers: &RedisServers, script: &str) -> Terminal {
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("set -m; {script}")]);
    shell.env("REDLOCK_NODES", servers.urls().join(","));
    shell.env("REDLOCK_NODE_TIMEOUT", "500ms").env("R", env!("CARGO_BIN_EXE_redlock"));
    Terminal::start(&shell)
}

#[test]
fn the_command_is_in_the_foreground_and_reads_the_terminal() {
    let servers = RedisServers::start(1).unwrap();
    // The fields of stat: pid, name, state, parent, group, session, terminal, foreground group.
    let script = "cut -d' ' -f5,8 /proc/$$/stat; read x; echo \"got $x\"; exit 6";
    let mut terminal = Terminal::start(&redlock(&servers, ["run", "k", "--", "sh", "-c", script]));
    let groups = poll("the groups are shown", || {
        let screen = terminal.screen.lock().unwrap();
        screen.split_once("\r\n").map(|(line, _)| line.to_owned())
    });
    let (group, foreground) = groups.split_once(' ').unwrap();
    assert_eq!(group, foreground);
    terminal.type_in("hello\n");
    terminal.shows("got hello");
    assert_eq!(terminal.code(), 6);
}

#[test]
fn ctrl_c_ends_the_command_and_releases_the_lock() {
    let servers = RedisServers::start(1).unwrap();
    // A shell that is about to fork sometimes loses a Ctrl-C. A shell that is about to exec does
    // not.
    let script = "echo ready; exec sleep 600";
    let mut terminal = Terminal::start(&redlock(&servers, ["run", "k", "--", "sh", "-c", script]));
    terminal.shows("ready");
    terminal.type_in("\x03");
    assert_eq!(terminal.code(), 130);
    assert_eq!(copies(&servers, "k"), 0);
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let servers = RedisServers::start(1).unwrap();
    let script = "$R run k -- sh -c 'echo ready; read x; echo \"got $x\"; exit 5'; \
                  echo \"stopped $?.\"; fg >/dev/null; echo \"ended $?.\"";
    let mut terminal = shell(&servers, script);
    terminal.shows("ready");
    terminal.type_in("\x1a");
    terminal.shows("stopped 1");
    terminal.type_in("hello\n");
    terminal.shows("got hello");
    terminal.shows("ended 5.");
    assert_eq!(terminal.code(), 0);
    assert_eq!(copies(&servers, "k"), 0);
}

#[test]
fn ctrl_z_does_nothing_without_a_job_control_shell() {
    let servers = RedisServers::start(1).unwrap();
    let script = "trap 'echo on again' CONT; echo ready; read x; read x; echo \"got $x\"";
    let mut terminal = Terminal::start(&redlock(&servers, ["run", "k", "--", "sh", "-c", script]));
    terminal.shows("ready");
    terminal.type_in("\x1a");
    terminal.shows("on again");
    terminal.type_in("hello\nhello\n");
    terminal.shows("got hello");
    assert_eq!(terminal.code(), 0);
}

#[test]
fn job_stopped_longer_than_its_lock_is_killed_when_continued() {
    let servers = RedisServers::start(1).unwrap();
    let script = "$R run k --ttl 2s -- sh -c 'echo ready; read x'; \
                  echo \"stopped $?.\"; read y; fg >/dev/null; echo \"ended $?.\"";
    let mut terminal = shell(&servers, script);
    terminal.shows("ready");
    terminal.type_in("\x1a");
    terminal.shows("stopped 1");
    poll("the lock expires", || (copies(&servers, "k") == 0).then_some(()));
    terminal.type_in("go\n");
    terminal.shows("ended 79.");
}

#[test]
fn ctrl_z_also_stops_processes_that_ignore_it() {
    let servers = RedisServers::start(1).unwrap();
    let script = "$R run k --ttl 2s -- sh -c 'env --ignore-signal=TSTP sleep 600 & \
                  echo redlock $PPID; echo member $!; read x'; \
                  echo \"stopped $?.\"; read y; fg >/dev/null; echo \"ended $?.\"";
    let mut terminal = shell(&servers, script);
    let watchdog = watchdog_of(terminal.shows("redlock ").parse().unwrap());
    let member: i32 = terminal.shows("member ").parse().unwrap();
    terminal.type_in("\x1a");
    terminal.shows("stopped 1");
    poll("it is stopped", || is_stopped(member).then_some(()));
    let (stalls, waited) = (Stalls::watch(), waited_for_processor(watchdog));
    poll("the lock expires", || (copies(&servers, "k") == 0).then_some(()));
    let expired = Instant::now();
    poll("it ends", || (!is_alive(member)).then_some(()));
    let outlived = expired.elapsed();
    // The first look itself takes a moment.
    let most = waited_for_processor(watchdog) - waited + Duration::from_millis(20);
    assert!(outlived <= most || stalls.explain_now(), "it outlives the lock by {outlived:?}");
    terminal.type_in("go\n");
    let cause = terminal.shows("redlock: ");
    assert!(cause.contains("not extended in time because the job was stopped"), "{cause}");
    assert!(cause.contains("SIGKILL"), "{cause}");
    terminal.shows("ended 79.");
}

#[test]
fn command_stopped_and_continued_externally_keeps_its_lock() {
    let servers = RedisServers::start(1).unwrap();
    let script = "$R run k --ttl 5s -- sh -c 'echo pids $PPID $$; \
                  trap \"exit 5\" TERM; while :; do sleep 0.05; done'; \
                  echo \"stopped $?.\"; wait -f %1; echo \"ended $?.\"";
    let terminal = shell(&servers, script);
    let pids = terminal.shows("pids ");
    let (redlock, child) = pids.split_once(' ').unwrap();
    let (redlock, child) = (redlock.parse::<i32>().unwrap(), child.parse().unwrap());
    send(child, Signal::STOP);
    terminal.shows("stopped 1");
    poll("the job stops as a whole", || is_stopped(redlock).then_some(()));
    send(child, Signal::CONT);
    poll("redlock goes on, too", || (!is_stopped(redlock)).then_some(()));
    // Well beyond the TTL.
    thread::sleep(Duration::from_secs(7));
    assert!(is_alive(child) && !is_stopped(child));
    assert_eq!(copies(&servers, "k"), 1);
    send(child, Signal::TERM);
    terminal.shows("ended 5.");
    assert_eq!(copies(&servers, "k"), 0);
}

#[test]
fn blocked_terminal_stop_signal_still_stops_the_job() {
    let servers = RedisServers::start(1).unwrap();
    let script = "env --block-signal=TTOU,CHLD $R run k -- sh -c 'echo ready; read x; exit 5'; \
                  echo \"stopped $?.\"; fg >/dev/null; echo \"ended $?.\"";
    let mut terminal = shell(&servers, script);
    terminal.shows("ready");
    terminal.type_in("\x1a");
    terminal.shows("stopped 1");
    terminal.type_in("hello\n");
    terminal.shows("ended 5.");
}

#[test]
fn command_with_redirected_output_can_read_the_terminal() {
    let servers = RedisServers::start(1).unwrap();
    let script = "$R run k -- sh -c 'echo ready >&2; read x; echo \"got $x\"' | cat; echo end $?.";
    let mut terminal = shell(&servers, script);
    terminal.shows("ready");
    terminal.type_in("hello\n");
    terminal.shows("got hello");
    terminal.shows("end 0.");
    assert_eq!(terminal.code(), 0);
}

#[test]
fn ctrl_z_stops_a_command_outside_the_foreground() {
    let servers = RedisServers::start(1).unwrap();
    // Some shells cannot be stopped while what they have just started is stopped: `wait` can.
    let files = Scratch::new("background");
    let go = files.file("go");
    let waits = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    let script = format!(
        "$R run k -- sh -c '({waits}) & echo ready >&2; wait; echo over' | cat; \
         echo \"stopped $?.\"; fg >/dev/null; echo \"ended $?.\""
    );
    let mut terminal = shell(&servers, &script);
    terminal.shows("ready");
    terminal.type_in("\x1a");
    terminal.shows("stopped 1");
    fs::write(go, "").unwrap();
    terminal.shows("over");
    terminal.shows("ended 0.");
}

/// In a script, each of the two streams has everything. If both are on one screen, each answer
/// occurs once.
#[test]
fn status_prints_each_answer_once_on_a_terminal() {
    let servers = RedisServers::start(3).unwrap();
    let terminal = Terminal::start(&redlock(&servers, ["status", "k"]));
    terminal.shows("redlock: k is free");
    let screen = terminal.all();
    assert_eq!(screen.matches("k is free").count(), 1, "{screen}");
    assert!(screen.starts_with("3 masters  free"), "{screen}");
    assert_eq!(screen.matches("3 masters").count(), 1, "{screen}");
}

/// The findings are right above the last line. In a mail from cron, the last line may be all.
#[test]
fn doctor_on_a_terminal_does_not_repeat_its_findings() {
    let servers = RedisServers::start(2).unwrap();
    let said = Terminal::start(&redlock(&servers, ["doctor"])).all();
    assert!(said.contains("warning: 2 masters tolerate no failure"), "{said}");
    assert!(said.ends_with("redlock: 1 finding\r\n"), "{said}");
    let mail = redlock(&servers, ["doctor"]).output().unwrap();
    let mail = String::from_utf8(mail.stderr).unwrap();
    assert_eq!(mail, "redlock: 1 finding: 2 masters tolerate no failure\n");
}
