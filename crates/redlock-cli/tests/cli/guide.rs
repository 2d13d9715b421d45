//! The commands, units and access lists of the documents, run as they are written there.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use redlock_testkit::lab::calls;
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

use crate::support::{
    Answer, NODE_TIMEOUT, Running, Scratch, answer_of, bare, copies, poll, value,
};

const CLI: &str = include_str!("../../../../docs/CLI.md");
const INSTALL: &str = include_str!("../../../../docs/INSTALL.md");
const OPERATIONS: &str = include_str!("../../../../docs/OPERATIONS.md");

/// The text of a document between a heading and the next one of its level or above.
fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let from = document.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    let text = &document[from + heading.len() + 1..];
    let level = heading.find(' ').unwrap();
    let is_end = |line: &&str| {
        let hashes = line.bytes().take_while(|byte| *byte == b'#').count();
        (1..=level).contains(&hashes) && line.as_bytes().get(hashes) == Some(&b' ')
    };
    // In a block of commands a line that begins with one # is a comment.
    let mut is_code = false;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        is_code ^= line.starts_with("```");
        if !is_code && is_end(&line) {
            break;
        }
        end += line.len();
    }
    &text[..end]
}

fn blocks<'a>(section: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("```{language}\n");
    let inside = section.split(start.as_str()).skip(1);
    inside.map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Creates a directory with `redlock` and the programs of the guide, which report that they ran, on
/// its path.
fn host(name: &str) -> Scratch {
    let host = Scratch::new(name);
    symlink(env!("CARGO_BIN_EXE_redlock"), host.file("redlock")).unwrap();
    let programs = [
        "report.sh",
        "report",
        "migrate",
        "deploy",
        "step-1",
        "step-2",
        "transfer",
        "backup",
        "leader",
    ];
    for program in programs {
        let file = host.file(program);
        fs::write(&file, format!("#!/bin/sh\necho {program} ran\n")).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    }
    host
}

/// A command in that directory.
fn on_host(
    host: &Scratch,
    servers: &RedisServers,
    program: impl AsRef<std::ffi::OsStr>,
) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("REDLOCK_CONFIG", "/dev/null")
        .env("REDLOCK_NODES", servers.urls().join(","));
    command.env("REDLOCK_NODE_TIMEOUT", NODE_TIMEOUT).current_dir(host.file(""));
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", host.file("").display());
    command.env("PATH", path).stdin(std::process::Stdio::null());
    command
}

fn shell(host: &Scratch, servers: &RedisServers, script: &str) -> Answer {
    answer_of(on_host(host, servers, "bash").args(["-eu", "-c", script]))
}

#[test]
fn the_commands_of_the_guide_run_as_written() {
    let servers = RedisServers::start(5).unwrap();
    let host = host("guide");
    let headings = ["## Commands", "## Periodic jobs", "## Stuck locks", "## Nested locks"];
    let blocks = headings.map(|heading| blocks(section(CLI, heading), "sh").concat());
    assert!(blocks.iter().all(|block| !block.is_empty()), "{blocks:#?}");
    let answer = shell(&host, &servers, &blocks[0]);
    let runs = answer.success().matches("report.sh ran").count();
    assert_eq!(runs, 1, "a success leaves a mark: {answer:?}");
    assert!(answer.out.contains("deploy ran"), "{answer:?}");
    assert!(answer.out.contains("migrate ran"), "{answer:?}");
    assert!(answer.out.contains("\ndeploy is held by "), "by key: {answer:?}");
    let listed = |line: &str| line.starts_with("deploy ") && line.contains("  held by ");
    assert!(answer.out.lines().any(listed), "in the list: {answer:?}");
    assert_eq!(copies(&servers, "deploy"), 0);

    const MARK: &str = "redlock-quorum:1:done:nightly-report";
    assert_eq!(copies(&servers, MARK), 5);
    shell(&host, &servers, &blocks[1]).success();
    assert_eq!(copies(&servers, MARK), 0);
    let nested = shell(&host, &servers, &blocks[3]);
    assert!(nested.success().contains("deploy ran"), "{nested:?}");

    for server in servers.iter() {
        server.command(&["SET", "deploy", "an old script"]).unwrap();
    }
    let answer = shell(&host, &servers, &blocks[2]);
    assert!(answer.success().contains("deploy is held by an old script, never expires"));
    // A busy machine may not reach a minority in time. The command then names each of them.
    let kept: Vec<_> = servers.iter().filter(|server| value(server, "deploy").is_some()).collect();
    // Equal answers of two masters are in one note.
    let notes = || answer.err.lines().filter(|line| line.contains(" may keep the key: "));
    let is_named = |server: &RedisServer| notes().any(|note| note.contains(&server.name()));
    assert!(kept.len() < 3 && kept.iter().all(|server| is_named(server)), "{answer:?}");
}

/// The words of a line, with the programs of the guide where they are in the test.
fn words(line: &[&str], host: &Scratch) -> Vec<String> {
    let local = |word: &&str| match Path::new(word) {
        path if path.is_absolute() => {
            host.file(path.file_name().unwrap().to_str().unwrap()).display().to_string()
        }
        _ => (*word).to_owned(),
    };
    line.iter().map(local).collect()
}

#[test]
fn unit_of_the_guide_runs_or_finds_the_job_done() {
    let servers = RedisServers::start(3).unwrap();
    let host = host("unit");
    let unit = blocks(section(INSTALL, "## A systemd timer on many hosts"), "ini")[0];
    let setting = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.unwrap_or_else(|| panic!("{name}"))
    };
    assert_eq!(setting("KillMode"), "mixed", "the report is signalled once");
    let words = words(&setting("ExecStart").split(' ').collect::<Vec<_>>(), &host);
    let nodes = host.file("nodes");
    fs::write(&nodes, servers.urls().join("\n")).unwrap();
    let run = || {
        let mut command = on_host(&host, &servers, &words[0]);
        command.env_remove("REDLOCK_NODES");
        let (variable, _) = setting("Environment").split_once('=').unwrap();
        answer_of(command.env(variable, &nodes).args(&words[1..]))
    };
    assert_eq!(run().success(), "report ran");
    let later = run();
    assert_eq!((later.code, later.out.as_str()), (0, ""), "{later:?}");
    assert!(later.cause().contains("nightly-report was already completed by "), "{later:?}");
    assert_eq!(setting("SuccessExitStatus"), "75", "another host at work is not a failure");
}

#[test]
fn cron_job_of_the_guide_runs_or_finds_the_job_done() {
    let servers = RedisServers::start(3).unwrap();
    let host = host("job");
    let job = blocks(section(INSTALL, "## A Kubernetes CronJob in several clusters"), "yaml")[0];
    let line = job.lines().find_map(|line| line.trim().strip_prefix("command: ")).unwrap();
    let line: Vec<&str> = serde_json::from_str(line).unwrap();
    let words = words(&line, &host);
    let run = || {
        let mut command = on_host(&host, &servers, host.file(&words[0]));
        answer_of(command.args(&words[1..]))
    };
    assert_eq!(run().success(), "report ran");
    let later = run();
    assert_eq!((later.code, later.out.as_str()), (0, ""), "{later:?}");
    assert!(later.cause().contains("nightly-report was already completed by "), "{later:?}");
}

/// Returns the lines for an access list: the line that every server must support, and the others.
fn rights() -> (Vec<&'static str>, Vec<Vec<&'static str>>) {
    let lines = blocks(section(OPERATIONS, "## A user with limited rights"), "text").concat();
    let lines = OPERATIONS
        .lines()
        .filter(|line| lines.contains(line) && line.starts_with("ACL SETUSER redlock "));
    let mut lines = lines.map(|line| line.split(' ').collect());
    (lines.next().unwrap(), lines.collect())
}

/// The user of the guide admits a master, and ends a quarantine.
fn is_admitted_by_the_user(server: &RedisServer) {
    let url = server.url().replace("redis://", "redis://redlock:PASSWORD@");
    let ask = |words: &str| {
        let mut command = bare([]);
        answer_of(command.env("REDLOCK_NODES", &url).args(words.split(' ')))
    };
    ask("init --yes").success();
    ask("--prefix other: --node-timeout 500ms --max-ttl 2s run k --ttl 2s --wait 20s -- true")
        .success();
    let doctor = ask("doctor");
    assert_eq!(doctor.code, 0, "{doctor:?}");
}

/// Every command as the user of the guide, who must never be denied anything.
fn use_as_the_user(server: &RedisServer) {
    let url = server.url().replace("redis://", "redis://redlock:PASSWORD@");
    let ask = |words: &[&str]| {
        let mut command = bare([]);
        let answer = answer_of(command.env("REDLOCK_NODES", &url).args(words));
        assert!(!format!("{answer:?}").contains("NOPERM"), "{words:?}: {answer:?}");
        answer
    };
    let acquired = ask(&["-v", "acquire", "k"]);
    let token = acquired.success().split(' ').next().unwrap();
    let status = ask(&["status", "k"]);
    assert!(
        !status.success().contains("cannot wake waiting clients"),
        "waiters are woken: {status:?}"
    );
    assert!(ask(&["status"]).success().starts_with("k  held by "));
    ask(&["extend", "k", token]).success();
    ask(&["run", "once", "--fire", "7", "--", "true"]).success();
    assert!(ask(&["status", "once"]).out.contains("fire 7"), "a mark is kept");
    ask(&["release", "--force", "--mark", "once", "--yes"]).success();
    ask(&["release", "k", token]).success();
    assert_eq!(ask(&["run", "k", "--", "sh", "-c", "exit 5"]).code, 5);
    ask(&["acquire", "k"]).success();
    ask(&["release", "--force", "k", "--yes"]).success();
}

/// A waiting command, as the user of the guide, subscribes to changes and gets the lock.
fn is_woken_as_the_user(server: &RedisServer) {
    let url = server.url().replace("redis://", "redis://redlock:PASSWORD@");
    let ours = || {
        let mut command = bare([]);
        command.env("REDLOCK_NODES", &url);
        command
    };
    let acquired = answer_of(ours().args(["acquire", "k"]));
    let token = acquired.success().split(' ').next().unwrap();
    let mut command = ours();
    command.args(["acquire", "k", "--wait", "30s"]);
    let waiting = Running::start(command);
    poll("it asks for a report of the next change", || {
        (calls(server, "client|caching") > 0).then_some(())
    });
    assert!(calls(server, "client|tracking") > 0);
    answer_of(ours().args(["release", "k", token])).success();
    let answer = waiting.answer();
    let token = answer.success().split(' ').next().unwrap();
    answer_of(ours().args(["release", "k", token])).success();
}

#[test]
fn status_reports_optional_rights_that_the_guide_omits() {
    let (needed, _) = rights();
    let server = RedisServer::start().unwrap();
    let less: Vec<&str> =
        needed.into_iter().filter(|word| !word.starts_with("+client|tracking")).collect();
    server.command(&less).unwrap();
    let url = server.url().replace("redis://", "redis://redlock:PASSWORD@");
    let mut command = bare([]);
    let answer = answer_of(command.env("REDLOCK_NODES", &url).args(["acquire", "k"]));
    answer.success();
    let mut command = bare([]);
    let status = answer_of(command.env("REDLOCK_NODES", &url).args(["status", "k"]));
    assert!(status.success().contains("cannot wake waiting clients"), "{status:?}");
}

#[test]
fn access_list_of_the_guide_is_accepted_and_enough() {
    let (needed, optional) = rights();
    let server = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
    server.command(&needed).unwrap();
    // Servers before 6.2 know no rights for channels.
    let (channels, optional) = optional.split_first().unwrap();
    server.command(channels).unwrap();
    is_admitted_by_the_user(&server);
    use_as_the_user(&server);
    is_woken_as_the_user(&server);
    assert_eq!(optional.len(), 3);
    for line in optional {
        // A server that does not know the command refuses the line, and the user stays as it was.
        let taken = server.command(line);
        let is_known = |reply: &anyhow::Error| format!("{reply:?}").contains("Unknown command");
        assert!(taken.as_ref().err().is_none_or(is_known), "{line:?}: {taken:?}");
        use_as_the_user(&server);
    }
}
