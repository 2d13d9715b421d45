//! `run --once-in` and `--fire`: work that many hosts start and that is done once.

use std::process::Command;

use redlock_testkit::RedisServers;
use rustix::process::Signal;
use serde_json::json;

use crate::support::{Answer, Running, Scratch, answer_of, ask, copies, poll, redlock, value};

const MARK: &str = "redlock-quorum:1:done:report";

/// Creates a run that adds a line to a file.
fn counting(servers: &RedisServers, options: &[&str], scratch: &Scratch, work: &str) -> Command {
    let mut command = redlock(servers, ["run", "report", "--wait", "60s"]);
    let text = format!("echo ran >> '{}'; {work}", scratch.file("runs").display());
    command.args(options).args(["-c", &text]);
    command
}

fn runs(scratch: &Scratch) -> usize {
    std::fs::read_to_string(scratch.file("runs")).unwrap_or_default().lines().count()
}

/// Returns `true` if the command reported that there was nothing to do.
fn is_done(answer: &Answer, by: &str) -> bool {
    let said = format!("redlock: report was already completed by {by} at 20");
    answer.code == 0 && answer.out.is_empty() && answer.cause().starts_with(&said)
}

#[test]
fn only_one_of_several_hosts_does_the_job() {
    let (servers, scratch) = (RedisServers::start(5).unwrap(), Scratch::new("once-hosts"));
    // On a busy machine a master that answers after the node timeout is named in a note, and may
    // get its copy of the mark later.
    let patient = ["--node-timeout", "7s"];
    let start = |host: usize| {
        let mut command = counting(&servers, &["--once-in", "12h"], &scratch, "sleep 0.5");
        command.args(patient).args(["--label", &format!("host-{host}")]);
        Running::start(command)
    };
    #[expect(clippy::needless_collect, reason = "all are started before one is waited for")]
    let hosts: Vec<_> = (0..4).map(start).collect();
    let mut answers: Vec<_> = hosts.into_iter().map(Running::answer).collect();
    assert_eq!(runs(&scratch), 1, "{answers:?}");
    let ran = answers.iter().position(|answer| answer.err.is_empty()).expect("one has run");
    let by = format!("host-{ran}");
    assert_eq!(answers.remove(ran).code, 0);
    assert!(answers.iter().all(|answer| is_done(answer, &by)), "{answers:?}");
    let later = start(9).answer();
    assert!(is_done(&later, &by) && runs(&scratch) == 1, "{later:?}");
    let mut quiet = counting(&servers, &["--once-in", "12h", "-q"], &scratch, "");
    assert_eq!(answer_of(quiet.args(patient)).success(), "");
    assert_eq!(copies(&servers, "report"), 0);
    assert_eq!(copies(&servers, MARK), 5);
    // A host whose period is over does it again.
    let mut again = counting(&servers, &["--once-in", "1ms"], &scratch, "");
    let again = answer_of(again.args(patient));
    assert_eq!((again.success(), runs(&scratch)), ("", 2));
}

#[test]
fn later_fire_runs_for_times_and_numbers() {
    let (servers, scratch) = (RedisServers::start(3).unwrap(), Scratch::new("once-fire"));
    let run = |fire: &str| {
        let mut command = counting(&servers, &["--fire", fire, "--label", "me"], &scratch, "");
        answer_of(&mut command)
    };
    run("2026-11-23T03:00Z").success();
    let mark = servers.iter().find_map(|server| value(server, MARK)).unwrap();
    assert!(mark.ends_with(" 1795402800 me"), "{mark}");
    for done in ["2026-11-23T04:00:00+01:00", "1795402800", "2026-11-22T03:00Z", "1"] {
        let answer = run(done);
        assert!(is_done(&answer, "me"), "{done}: {answer:?}");
    }
    run("2026-11-24T03:00Z").success();
    assert_eq!(runs(&scratch), 2);
    for refused in ["0", "2026-11-23", "9007199254740992"] {
        let answer = run(refused);
        assert_eq!(answer.code, 64, "{answer:?}");
    }
    let both = ask(&servers, ["run", "k", "--fire", "1", "--once-in", "1h", "--", "true"]);
    assert_eq!(both.code, 64, "{both:?}");
}

/// Its mark would keep the job from running until then.
#[test]
fn mistyped_year_of_a_fire_is_refused_without_blocking_the_job() {
    let (servers, scratch) = (RedisServers::start(3).unwrap(), Scratch::new("once-far"));
    let run = |fire: &[&str]| answer_of(&mut counting(&servers, fire, &scratch, ""));
    for far in ["2206-11-23T03:00Z", "Sun, 23 Nov 2206 03:00:00 +0000"] {
        let refused = run(&["--fire", far]);
        assert_eq!((refused.code, copies(&servers, MARK)), (64, 0), "{refused:?}");
        let said = "report: refused, the command was not run: --fire 2206-11-23 03:00:00 UTC";
        assert!(refused.cause().contains(said), "{refused:?}");
        assert!(refused.cause().ends_with("or use --far-fire"), "{refused:?}");
    }
    run(&["--fire", "2026-11-23T03:00:00,5+0000"]).success();
    // A bare number may be a counter.
    run(&["--fire", "7476461999"]).success();
    run(&["--fire", "2206-12-03T03:00Z", "--far-fire"]).success();
    assert_eq!(runs(&scratch), 3);
    let skipped = run(&["--fire", "2026-11-24T03:00Z"]);
    assert_eq!((skipped.code, runs(&scratch)), (0, 3), "{skipped:?}");
    assert!(skipped.cause().contains(" (2206-12-03 03:00:00 UTC); nothing to do; "), "{skipped:?}");
    assert!(skipped.cause().ends_with("`redlock release --force --mark report`"), "{skipped:?}");
    let doctor = ask(&servers, ["doctor"]);
    let found = "more than one day ahead if it is a time (2206-12-03 03:00:00 UTC)";
    assert!(doctor.code == 1 && doctor.out.contains(found), "{doctor:?}");
    ask(&servers, ["release", "--force", "--mark", "report", "--yes"]).success();
    run(&["--fire", "2026-11-24T03:00Z"]).success();
    assert_eq!(runs(&scratch), 4);
}

#[test]
fn failed_run_leaves_a_mark_only_with_mark_failures() {
    let (servers, scratch) = (RedisServers::start(3).unwrap(), Scratch::new("once-failed"));
    let run = |options: &[&str], work: &str| {
        answer_of(&mut counting(&servers, options, &scratch, work)).code
    };
    assert_eq!(run(&["--fire", "7"], "exit 3"), 3);
    assert_eq!((copies(&servers, MARK), copies(&servers, "report")), (0, 0));
    let missing = ["run", "report", "--fire", "7", "--mark-failures", "--", "/no/such"];
    assert_eq!(ask(&servers, missing).code, 127);
    assert_eq!(copies(&servers, MARK), 0, "a job that never started is not completed");
    assert_eq!(run(&["--fire", "7", "--mark-failures"], "exit 3"), 3);
    assert_eq!(run(&["--fire", "7"], "exit 3"), 0, "it was done");
    assert_eq!(runs(&scratch), 2);
}

/// A waiting host does the job of a killed host after its lease has ended.
#[test]
fn waiting_host_follows_a_killed_one() {
    let (servers, scratch) = (RedisServers::start(3).unwrap(), Scratch::new("once-killed"));
    let options = ["--once-in", "12h", "--ttl", "5s"];
    let killed = Running::start(counting(&servers, &options, &scratch, "sleep 100"));
    poll("it runs", || (runs(&scratch) == 1).then_some(()));
    let waiting = Running::start(counting(&servers, &options, &scratch, ""));
    killed.signal(Signal::KILL);
    let answer = waiting.answer();
    assert_eq!((answer.success(), runs(&scratch)), ("", 2));
    assert!(copies(&servers, MARK) >= 2);
}

#[test]
fn mark_without_a_quorum_is_a_note_and_the_lock_expires() {
    let (servers, scratch) = (RedisServers::start(3).unwrap(), Scratch::new("once-note"));
    let spoil = |server: usize| {
        format!("redis-cli -u {} SET {MARK} none >/dev/null; ", servers.urls()[server])
    };
    if Command::new("redis-cli").arg("--version").output().is_err() {
        return;
    }
    let work = [spoil(0), spoil(1)].concat();
    let options = ["--once-in", "12h", "--ttl", "5s"];
    let answer = answer_of(&mut counting(&servers, &options, &scratch, &work));
    assert_eq!(answer.code, 0, "the code is the command's: {answer:?}");
    let note =
        answer.err.lines().find(|line| line.starts_with("note: report completed, but too few"));
    assert!(note.is_some_and(|note| note.contains("the mark is malformed")), "{answer:?}");
    // Nothing is run where no quorum says what was done.
    let refused = answer_of(&mut counting(&servers, &options, &scratch, ""));
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.cause().contains("report: no quorum"), "{refused:?}");
    assert_eq!(runs(&scratch), 1);
}

#[test]
fn the_last_run_is_shown_and_removed() {
    let servers = RedisServers::start(3).unwrap();
    let run = || ask(&servers, ["run", "report", "--fire", "7", "--label", "me", "--", "true"]);
    assert_eq!(ask(&servers, ["status", "report", "--json"]).json()["done"], json!(null));
    // Each call writes the mark to masters that lack it, such as a master that connected late.
    poll("all masters have the mark", || {
        run().success();
        (copies(&servers, MARK) == 3).then_some(())
    });
    let status = ask(&servers, ["status", "report", "--json"]);
    let done = &status.json()["done"];
    assert_eq!((status.code, &done["fire"], &done["by"]), (1, &json!(7), &json!("me")));
    assert!(done["at_ms"].as_u64().is_some_and(|at| at > 1_700_000_000_000), "{done}");
    let people = ask(&servers, ["status", "report"]).out;
    let line = people.lines().last().unwrap();
    assert!(line.starts_with("last run 20") && line.ends_with(" UTC by me, fire 7"), "{people}");
    let list = ask(&servers, ["status", "--json"]).json();
    assert_eq!((&list["locks"], &list["done"][0]["key"]), (&json!([]), &json!("report")));
    assert_eq!(list["done"][0]["fire"], json!(7));
    assert!(ask(&servers, ["status"]).out.contains("report  last run 20"));

    let unasked = ask(&servers, ["release", "--force", "--mark", "report"]);
    assert_eq!((unasked.code, copies(&servers, MARK)), (64, 3), "{unasked:?}");
    let removed = ask(&servers, ["release", "--force", "--mark", "report", "--yes", "--json"]);
    removed.success();
    let nodes: Vec<_> = servers.iter().map(|server| server.name()).collect();
    assert_eq!(removed.json(), json!({"key": "report", "deleted": nodes}));
    assert!(removed.err.contains("note: deletes the completion mark of report on "), "{removed:?}");
    assert_eq!(copies(&servers, MARK), 0);
    let again = ask(&servers, ["release", "--force", "--mark", "report", "--yes", "--json"]);
    assert_eq!((again.code, again.json()), (1, json!({"key": "report", "deleted": []})));
    run().success();
    assert!(copies(&servers, MARK) >= 2, "it was done again");
    servers[1..].iter().for_each(|server| server.kill());
    let unknown = ask(&servers, ["release", "--force", "--mark", "report", "--yes"]);
    assert_eq!(unknown.code, 69, "{unknown:?}");
}

#[test]
fn doctor_names_marks_of_the_future() {
    let servers = RedisServers::start(3).unwrap();
    ask(&servers, ["run", "report", "--once-in", "1h", "--", "true"]).success();
    assert!(!ask(&servers, ["doctor"]).out.contains("mark"));
    servers[0].command(&["SET", MARK, "4102444800000 0 me", "PX", "60000"]).unwrap();
    let answer = ask(&servers, ["doctor", "--json"]);
    let found = answer.json()["findings"].as_array().unwrap().clone();
    let found: Vec<_> =
        found.iter().filter(|one| one["what"].as_str().unwrap().contains("mark")).collect();
    assert_eq!((answer.code, found.len()), (1, 1), "{answer:?}");
    assert_eq!(found[0]["node"], json!(servers[0].name()));
    let what =
        "has an invalid completion mark: report was last completed at 2100-01-01 00:00:00 UTC";
    assert_eq!(found[0]["what"], json!(what));
    assert!(found[0]["fix"].as_str().unwrap().contains("release --force --mark"));
}

/// Until an operator removes it, all runs of that name fail.
#[test]
fn invalid_mark_is_named_and_removed() {
    let servers = RedisServers::start(3).unwrap();
    for words in [["RPUSH", MARK, "x"], ["SET", MARK, "x"]] {
        for server in servers.iter() {
            server.command(&words).unwrap();
        }
        let run = || ask(&servers, ["run", "report", "--once-in", "1h", "-n", "--", "true"]);
        assert_eq!(run().code, 69);
        let doctor = ask(&servers, ["doctor"]);
        let what = "has an invalid completion mark: the value of report was not written by redlock";
        assert_eq!(doctor.code, 1, "{doctor:?}");
        assert!(doctor.out.contains(what), "{doctor:?}");
        ask(&servers, ["release", "--force", "--mark", "report", "--yes"]).success();
        run().success();
        ask(&servers, ["release", "--force", "--mark", "report", "--yes"]).success();
    }
}

/// With the default wait of 10 s, a host that finds another host working exits with 75, or with the
/// code of -E.
#[test]
fn job_of_another_host_exits_with_the_held_code() {
    let (servers, scratch) = (RedisServers::start(3).unwrap(), Scratch::new("once-held"));
    let _running = Running::start(counting(&servers, &["--once-in", "1h"], &scratch, "sleep 100"));
    poll("it runs", || (runs(&scratch) == 1).then_some(()));
    let run = |option: &str| {
        answer_of(
            redlock(&servers, ["run", "report", "--once-in", "1h", "-n"])
                .args([option, "--", "true"]),
        )
    };
    assert_eq!(run("-v").code, 75);
    assert_eq!(run("-E9").code, 9);
}

/// The user may read locks, and not the marks.
#[test]
fn unreadable_last_run_is_reported_with_the_reason() {
    let servers = RedisServers::start(3).unwrap();
    ask(&servers, ["run", "report", "--fire", "7", "--", "true"]).success();
    for server in servers.iter() {
        let user = ["ACL", "SETUSER", "default", "resetkeys", "~report"];
        let others = ["~redlock-quorum:1", "~redlock-quorum:1:[bq]*"];
        server.command(&[&user[..], &others].concat()).unwrap();
    }
    for form in ["--no-queue", "--json"] {
        let status = ask(&servers, ["status", "report", form]);
        assert_eq!(status.code, 1, "{status:?}");
        let is_named = status.err.contains("note: the last run is unknown: ");
        assert!(is_named && status.err.contains("NOPERM"), "{status:?}");
    }
}
