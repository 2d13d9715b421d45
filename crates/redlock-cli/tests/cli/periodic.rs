//! The lines in the documents for jobs that many hosts start and one runs, exactly as written
//! there.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use redlock_testkit::RedisServers;

use crate::support::{Answer, Scratch, answer_of, bare, redlock};

const README: &str = include_str!("../../../../README.md");
const CLI: &str = include_str!("../../../../docs/CLI.md");
const INSTALL: &str = include_str!("../../../../docs/INSTALL.md");

/// The names that the documents use for such work.
const NAMES: [&str; 3] = ["nightly-report", "report", "backup"];

/// When each host starts, and how long its job takes.
const STARTS: [([Duration; 3], &str); 2] = [
    ([Duration::ZERO; 3], "1"),
    ([Duration::ZERO, Duration::from_secs(1), Duration::from_secs(3)], "0.3"),
];

/// The words of each documented line, from `run` on.
fn documented() -> Vec<Vec<String>> {
    let help = |words: &[&str]| answer_of(bare([]).args(words)).success().to_owned();
    let texts = [
        README.to_owned(),
        CLI.to_owned(),
        INSTALL.to_owned(),
        help(&["-h"]),
        help(&["--help"]),
        help(&["run", "--help"]),
    ];
    let lines = texts.iter().flat_map(|text| text.lines()).filter_map(words);
    let mut lines: Vec<_> = lines.filter(|words| NAMES.contains(&words[1].as_str())).collect();
    lines.sort();
    lines.dedup();
    lines
}

/// The words of a line of a shell, of a crontab, of a unit or of a manifest that starts `redlock run KEY`.
fn words(line: &str) -> Option<Vec<String>> {
    let line = line.trim();
    if let Some(list) = line.strip_prefix("command: ") {
        let words: Vec<String> = serde_json::from_str(list).ok()?;
        return words.first().is_some_and(|word| word == "redlock").then(|| words[1..].to_vec());
    }
    // A unit and a crontab start it by its path.
    let by_path = line.split_once("/usr/bin/redlock ").map(|(_, words)| words);
    let line = by_path.or_else(|| line.strip_prefix("redlock "))?.split(" #").next()?;
    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    (words.len() > 3 && words[0] == "run" && words.contains(&"--".to_owned())).then_some(words)
}

#[test]
fn documented_periodic_jobs_have_marks_and_long_waits() {
    let lines = documented();
    assert!(lines.len() >= 7, "README, CLI.md, INSTALL.md and --help: {lines:?}");
    for line in lines {
        let options: Vec<_> = line.iter().take_while(|word| *word != "--").collect();
        let has = |option: &str| options.iter().any(|word| *word == option);
        assert!(has("--once-in"), "another host would repeat the job: {line:?}");
        let wait = options.iter().position(|word| *word == "--wait");
        let is_long = wait.is_some_and(|at| options[at + 1].ends_with('h'));
        assert!(is_long, "no host would take over if this one dies: {line:?}");
    }
}

#[test]
fn documented_periodic_jobs_run_once_on_three_hosts() {
    let servers = RedisServers::start(3).unwrap();
    let lines = documented();
    thread::scope(|scope| {
        for (number, line) in lines.iter().enumerate() {
            for (case, (starts, job)) in STARTS.iter().enumerate() {
                let servers = &servers;
                let prefix = format!("{number}-{case}:");
                scope.spawn(move || assert_runs_once(servers, &prefix, line, starts, job));
            }
        }
    });
}

fn assert_runs_once(
    servers: &RedisServers,
    prefix: &str,
    line: &[String],
    starts: &[Duration],
    job: &str,
) {
    let init = ["init", "--yes", "--max-ttl", "10m"];
    answer_of(redlock(servers, init).env("REDLOCK_PREFIX", prefix)).success();
    let scratch = Scratch::new(&format!("periodic-{}", prefix.trim_end_matches(':')));
    let runs = scratch.file("runs");
    let work = format!("echo ran >> '{}'; sleep {job}", runs.display());
    let answers: Vec<Answer> = thread::scope(|scope| {
        let host = |after: &Duration| {
            let (after, mut command) = (*after, on_host(servers, prefix, line, &work));
            scope.spawn(move || {
                // The time between the starts of the hosts is part of the test. It does not wait
                // for anything.
                thread::sleep(after);
                answer_of(&mut command)
            })
        };
        #[expect(clippy::needless_collect, reason = "all are started before one is waited for")]
        let hosts: Vec<_> = starts.iter().map(host).collect();
        hosts.into_iter().map(|host| host.join().unwrap()).collect()
    });
    let runs = std::fs::read_to_string(runs).unwrap_or_default();
    assert_eq!(runs.lines().count(), 1, "{line:?}, {starts:?}: {answers:?}");
}

/// The documented line with this work in the place of its program.
fn on_host(servers: &RedisServers, prefix: &str, line: &[String], work: &str) -> Command {
    let mut command = redlock(servers, []);
    command.env("REDLOCK_PREFIX", prefix).stdin(Stdio::null());
    command.args(line.iter().take_while(|word| *word != "--"));
    command.args(["--", "sh", "-c", work]);
    command
}
