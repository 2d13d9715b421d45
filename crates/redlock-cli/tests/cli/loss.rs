//! A lock that is lost while the command runs.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redlock_testkit::{RedisServer, RedisServers};
use rustix::process::Signal;

use crate::signals::watchdog_of;
use crate::support::{
    Running, Scratch, Stalls, ask, copies, is_alive, is_stopped, poll, redlock, send,
    waited_for_processor,
};
use crate::unkillable::up;

/// Returns the validity after an extension: the TTL less 1% and 2 ms.
const fn validity(ttl: Duration) -> Duration {
    Duration::from_millis(ttl.as_millis() as u64 * 99 / 100 - 2)
}

const TTL: Duration = Duration::from_secs(3);

/// Starts a script that prints its own pid and the pid of a child.
fn holding(servers: &RedisServers, script: &str) -> (Running, [i32; 2]) {
    holding_for(servers, "3s", script)
}

fn holding_for(servers: &RedisServers, ttl: &str, script: &str) -> (Running, [i32; 2]) {
    let mut command = redlock(servers, ["run", "k", "--ttl", ttl, "--kill-after", "500ms"]);
    command.args(["--", "sh", "-c", script]);
    let mut run = Running::start(command);
    let pids = pids(&mut run);
    (run, pids)
}

/// The two pids that the script says.
pub(super) fn pids(run: &mut Running) -> [i32; 2] {
    let line = run.lines().next();
    let pids: Vec<i32> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
    pids.try_into().unwrap()
}

fn pause(servers: &[RedisServer]) {
    servers.iter().for_each(|server| server.pause().unwrap());
}

/// How long a key still lives on one master.
fn remaining(server: &RedisServer, key: &str) -> Duration {
    let left = format!("{:?}", server.command(&["PTTL", key]).unwrap());
    let millis = left.trim_start_matches("int(").trim_end_matches(')').parse().unwrap();
    Duration::from_millis(millis)
}

const STUBBORN: &str = "trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & \
                        echo $$ $!; while :; do sleep 0.1; done";

/// Processes that end the command in time, unless the machine has no processor for them: how long
/// each of them had waited for one when this was made, and at the last look.
struct Enders(Vec<(i32, Duration, Duration)>);

impl Enders {
    fn new(pids: &[i32]) -> Self {
        let waited = |pid: &i32| (*pid, waited_for_processor(pid), waited_for_processor(pid));
        Self(pids.iter().map(waited).collect())
    }

    /// Waits until the command and what it has started have ended.
    fn end(&mut self, pids: &[i32]) {
        poll("the command and what it has started end", || {
            // One that ends afterwards keeps what was seen last.
            for (pid, _, last) in &mut self.0 {
                *last = waited_for_processor(*pid).max(*last);
            }
            (!pids.iter().any(|pid| is_alive(*pid))).then_some(())
        });
    }

    fn late(&self) -> Duration {
        self.0.iter().map(|(_, first, last)| *last - *first).sum()
    }
}

/// The log of a command that ignores SIGTERM.
struct Diary(Scratch, Stalls);

impl Diary {
    fn new(name: &str) -> Self {
        Self(Scratch::new(name), Stalls::watch())
    }

    /// The command: what it has started notes the time, again and again.
    fn script(&self) -> String {
        let noting = format!("date +%s%N >> {}", self.0.file("diary").display());
        STUBBORN.replacen("sleep 0.1", &format!("{noting}; sleep 0.02"), 1)
    }

    /// Checks that the command ran until this instant, and not after it. A test that checks late,
    /// after the processes have exited, does not see later entries.
    fn assert_ended_by(&self, instant: Instant, enders: &Enders) {
        let end = SystemTime::now() - instant.elapsed() + enders.late();
        let diary = fs::read_to_string(self.0.file("diary")).unwrap();
        let noted = |line: &str| UNIX_EPOCH + Duration::from_nanos(line.parse().unwrap());
        // The last line may have been cut off.
        let last =
            diary.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).next_back();
        let last = noted(last.expect("it was at work"));
        let is_in_time = last < end || self.1.explain(end, last);
        let after = last.duration_since(end);
        assert!(is_in_time, "{after:?} after {end:?}; {:?}, {:?}", self.1, enders.late());
    }
}

#[test]
fn whole_group_exits_before_the_lock_can_pass_on() {
    let servers = RedisServers::start(5).unwrap();
    let diary = Diary::new("group");
    let (mut run, pids) = holding(&servers, &diary.script());
    let mut enders = Enders::new(&[run.pid(), watchdog_of(run.pid())]);
    let mut paused = Instant::now();
    for server in &servers[..3] {
        server.pause().unwrap();
        // From the third paused master on, no extension succeeds, so all leases end by this time.
        paused = Instant::now();
    }
    let valid_until = paused + validity(TTL);
    enders.end(&pids);
    diary.assert_ended_by(valid_until, &enders);
    poll("redlock ends", || run.has_ended().then_some(()));
    let answer = run.answer();
    assert_eq!(answer.code, 79);
    assert!(answer.cause().contains("SIGKILL"), "{answer:?}");
    for server in servers.iter() {
        assert!(answer.cause().contains(&server.name()), "{answer:?}");
    }
    // A stopped master may still have a request in its buffers.
    let kept = "may keep the key of k for up to 3.3s after it resumes";
    assert!(answer.err.contains(kept), "{answer:?}");
}

#[test]
fn lost_lock_sends_sigterm_first() {
    let servers = RedisServers::start(3).unwrap();
    let script = "trap 'echo bye >&2; exit 0' TERM; sleep 600 & echo $$ $!; wait";
    let mut command = redlock(&servers, ["run", "k", "--ttl", "9s", "--kill-after", "3s"]);
    command.args(["--", "sh", "-c", script]);
    let mut run = Running::start(command);
    let pids = pids(&mut run);
    servers[0].pause().unwrap();
    servers[1].pause().unwrap();
    let answer = run.answer();
    assert_eq!(answer.code, 79, "not the 0 of the command");
    assert!(answer.err.starts_with("bye\n"), "{answer:?}");
    assert!(answer.cause().contains("not extended in time"), "{answer:?}");
    assert!(answer.cause().contains("SIGTERM"), "{answer:?}");
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn terminating_command_is_killed_even_if_masters_return() {
    let servers = RedisServers::start(3).unwrap();
    let mut command = redlock(&servers, ["run", "k", "--ttl", "3s", "--kill-after", "2s"]);
    command.args(["--", "sh", "-c", "trap 'echo term' TERM; echo up; while :; do sleep 0.1; done"]);
    let (run, mut lines) = up(command);
    servers[0].pause().unwrap();
    servers[1].pause().unwrap();
    assert_eq!(lines.next(), "term");
    servers[0].resume().unwrap();
    servers[1].resume().unwrap();
    let answer = run.answer();
    assert_eq!(answer.code, 79);
    assert!(answer.cause().contains("SIGKILL"), "{answer:?}");
    assert_eq!(copies(&servers, "k"), 0, "it was still ours, and is released");
}

#[test]
fn proven_loss_kills_immediately() {
    const TTL: Duration = Duration::from_secs(15);
    let servers = RedisServers::start(3).unwrap();
    let (run, pids) = holding_for(&servers, "15s", STUBBORN);
    for server in servers.iter() {
        server.command(&["SET", "k", "stranger"]).unwrap();
    }
    let taken = Instant::now();
    let answer = run.answer();
    // The next extension finds out, and that is due at a third of the TTL.
    assert!(taken.elapsed() < TTL * 2 / 3, "{:?}", taken.elapsed());
    assert_eq!(answer.code, 79);
    assert!(answer.cause().contains("too few masters still have the key"), "{answer:?}");
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
    assert_eq!(copies(&servers, "k"), 3, "keys of the other program remain");
}

#[test]
fn loss_found_only_by_the_release_is_reported() {
    let servers = RedisServers::start(3).unwrap();
    let scripts = servers
        .iter()
        .map(|server| format!("redis-cli -p {} set k stranger >/dev/null; ", server.port()));
    let script: String = scripts.collect();
    let answer = ask(&servers, ["run", "k", "--", "sh", "-c", &script]);
    assert_eq!(answer.code, 79, "{answer:?}");
    assert!(answer.cause().contains("lost while the command ran"), "{answer:?}");
}

#[test]
fn two_silent_masters_of_five_are_not_a_loss() {
    let servers = RedisServers::start(5).unwrap();
    let mut command = redlock(&servers, ["run", "k", "--ttl", "4s"]);
    command.args(["--", "sh", "-c", "echo up; sleep 6; exit 3"]);
    let mut run = Running::start(command);
    run.lines().next();
    servers[0].pause().unwrap();
    servers[4].kill();
    let answer = run.answer();
    assert_eq!(answer.code, 3, "{answer:?}");
    servers[0].resume().unwrap();
}

#[test]
fn max_hold_ends_a_hanging_command() {
    let servers = RedisServers::start(1).unwrap();
    let began = Instant::now();
    let answer = ask(
        &servers,
        [
            "run",
            "k",
            "--ttl",
            "2s",
            "--max-hold",
            "1s",
            "--kill-after",
            "200ms",
            "--",
            "sleep",
            "600",
        ],
    );
    assert_eq!(answer.code, 79);
    let said =
        "redlock: k: lock lost: it was not extended beyond its --max-hold of 1s, the command ";
    assert!(answer.cause().starts_with(said), "{answer:?}");
    // Otherwise it would hang forever.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    poll("nothing is left of it", || (copies(&servers, "k") == 0).then_some(()));
}

#[test]
fn watchdog_ends_the_command_of_a_stopped_redlock() {
    let servers = RedisServers::start(3).unwrap();
    let diary = Diary::new("still");
    let (run, pids) = holding(&servers, &diary.script());
    run.signal(Signal::STOP);
    poll("redlock stands still", || is_stopped(run.pid()).then_some(()));
    let mut enders = Enders::new(&[watchdog_of(run.pid())]);
    // The last extension ends by this time.
    let valid_until = Instant::now() + validity(TTL);
    enders.end(&pids);
    diary.assert_ended_by(valid_until, &enders);
    assert!(is_stopped(run.pid()));
    poll("the lock expires", || (copies(&servers, "k") == 0).then_some(()));
    run.signal(Signal::CONT);
    let answer = run.answer();
    assert_eq!(answer.code, 79);
    assert!(answer.cause().contains("because redlock itself was stopped"), "{answer:?}");
    assert!(answer.cause().contains("SIGKILL"), "{answer:?}");
}

/// The time during which the watchdog was stopped does not extend the deadline.
#[test]
fn stopped_watchdog_still_ends_the_command_in_time() {
    let servers = RedisServers::start(3).unwrap();
    let diary = Diary::new("both-stopped");
    let (run, pids) = holding(&servers, &diary.script());
    let watchdog = watchdog_of(run.pid());
    let mut enders = Enders::new(&[watchdog]);
    run.signal(Signal::STOP);
    poll("redlock stands still", || is_stopped(run.pid()).then_some(()));
    let stopped = Instant::now();
    let valid_until = stopped + validity(TTL);
    let until = |left| poll("time passes", || (stopped.elapsed() + left > TTL).then_some(()));
    until(Duration::from_millis(550));
    send(watchdog, Signal::STOP);
    until(Duration::from_millis(200));
    send(watchdog, Signal::CONT);
    enders.end(&pids);
    diary.assert_ended_by(valid_until, &enders);
    run.signal(Signal::CONT);
    assert_eq!(run.answer().code, 79);
}

/// Two masters are paused, and the three others extend the lease once more, so it ends with those.
/// Then one of the three loses the key and cannot get it back while the two are paused, so the
/// lease ends with the first two.
#[test]
fn shortened_lease_still_ends_the_command_in_time() {
    const TTL: Duration = Duration::from_secs(6);
    let servers = RedisServers::start(5).unwrap();
    let px = TTL + TTL / 10;
    let is_fresh = |server| remaining(server, "k") > TTL;
    let diary = Diary::new("earlier");
    let mut command = redlock(&servers, ["run", "k", "--ttl", "6s", "--kill-after", "500ms"]);
    command.args(["--", "sh", "-c", &format!("trap '' USR1; {}", diary.script())]);
    let mut run = Running::start(command);
    let pids = pids(&mut run);
    poll("the lock was extended a moment ago", || is_fresh(&servers[0]).then_some(()));
    // The reply has arrived by now, so this is not earlier than the actual time.
    let extended = Instant::now() - (px - remaining(&servers[0], "k"));
    pause(&servers[..2]);
    let paused = Instant::now();
    poll("the three others are extended without the two", || {
        (paused.elapsed() > TTL / 6 && is_fresh(&servers[2])).then_some(())
    });
    pause(&servers[3..]);
    let mut enders = Enders::new(&[run.pid(), watchdog_of(run.pid())]);
    // A passed-on signal makes redlock check the lease, which at this time still ends late.
    run.signal(Signal::USR1);
    servers[2].command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    servers[2].command(&["FLUSHALL"]).unwrap();
    enders.end(&pids);
    diary.assert_ended_by(extended + validity(TTL), &enders);
    let held = extended.elapsed();
    assert!(held > TTL * 3 / 4, "{held:?}: the lease ended earlier, but not immediately");
    let answer = run.answer();
    assert_eq!(answer.code, 79, "{answer:?}");
    assert!(answer.cause().contains("SIGKILL"), "{answer:?}");
}

#[test]
fn answers_shown_with_a_loss_do_not_contradict_it() {
    let servers = RedisServers::start(1).unwrap();
    let (run, _) = holding(&servers, "sleep 600 & echo $$ $!; wait");
    servers[0].restart_empty().unwrap();
    let answer = run.answer();
    assert_eq!(answer.code, 79);
    // Whether its quarantine has begun by then or not.
    let has = format!(": {} not admitted: ", servers[0].name());
    assert!(answer.cause().contains(&has) && answer.cause().contains("it has: free"), "{answer:?}");
    assert!(!answer.cause().contains("granted"), "{answer:?}");
}

/// The launcher of a command, which waits in this pipe for the word of the watchdog.
fn launcher(word: &std::io::PipeReader, file: &std::path::Path) -> Running {
    rustix::io::fcntl_setfd(word, rustix::io::FdFlags::empty()).unwrap();
    let parent = std::process::id().to_string();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_redlock"));
    command.args(["__child", &parent, "background", ""]);
    command.arg(std::os::fd::AsRawFd::as_raw_fd(word).to_string());
    command.arg("sh").arg("-c").arg(r#"ls -l /proc/$$/fd >"$0""#).arg(file);
    Running::start(command)
}

/// A `redlock run` that is killed before that leaves no process, because the command has not
/// started.
#[test]
fn command_starts_after_the_watchdog_knows_it() {
    let files = Scratch::new("word");
    let (word, mut watchdog) = std::io::pipe().unwrap();
    let mut waiting = launcher(&word, &files.file("one"));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waiting.has_ended() && !files.file("one").exists());
    watchdog.write_all(b".").unwrap();
    assert_eq!(waiting.answer().code, 0);
    let open = fs::read_to_string(files.file("one")).unwrap();
    // By its number it could be a file that the shell has opened itself.
    let word = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&word));
    let pipe = fs::read_link(word).unwrap();
    let pipe = pipe.to_str().unwrap();
    assert!(pipe.starts_with("pipe:[") && open.contains("/dev/null"), "{pipe}, {open}");
    assert!(!open.contains(pipe), "the command inherits nothing: {open}");

    let (word, watchdog) = std::io::pipe().unwrap();
    let waiting = launcher(&word, &files.file("two"));
    drop(watchdog);
    let answer = waiting.answer();
    assert_eq!(answer.code, 126, "{answer:?}");
    assert!(answer.cause().contains("before the command started"), "{answer:?}");
    assert!(!files.file("two").exists());
}

/// MISCONF, NOREPLICAS and OOM refuse writes, and the status afterwards only reads.
#[test]
fn loss_names_the_error_that_refused_its_extension() {
    let servers = RedisServers::start(3).unwrap();
    let (run, _) = holding(&servers, "sleep 600 & echo $$ $!; wait");
    for server in servers.iter() {
        server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).unwrap();
    }
    let answer = run.answer();
    assert_eq!(answer.code, 79, "{answer:?}");
    let named = "the last extension failed: ";
    assert!(answer.cause().contains(named), "{answer:?}");
    assert!(answer.cause().contains("error reply: NOREPLICAS"), "{answer:?}");
}
