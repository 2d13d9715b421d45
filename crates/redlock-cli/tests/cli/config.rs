//! The configuration file of a host: what it gives, what takes precedence, and what it rejects.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use redlock_testkit::RedisServers;

use crate::support::{Answer, NODE_TIMEOUT, Scratch, answer_of, bare, copies, undisturbed};

/// A configuration file of these lines.
fn config(scratch: &Scratch, text: &str) -> PathBuf {
    let file = scratch.file("config");
    fs::write(&file, text).unwrap();
    file
}

/// A command with the file, and with no variable but it.
fn with_file(file: &PathBuf, words: &[&str]) -> Command {
    let mut command = bare([]);
    command.args(words).env_remove("REDLOCK_NODE_TIMEOUT").env("REDLOCK_CONFIG", file);
    command
}

fn lines(servers: &RedisServers) -> String {
    format!("REDLOCK_NODES={}\nREDLOCK_NODE_TIMEOUT=1200ms\n", servers.urls().join(","))
}

#[test]
fn job_needs_only_the_configuration_file() {
    let (servers, scratch) = (RedisServers::start(3).unwrap(), Scratch::new("config-alone"));
    let text = format!("# ours\n\n{}REDLOCK_LABEL=cron\n", lines(&servers));
    let file = config(&scratch, &text);
    let acquired = answer_of(&mut with_file(&file, &["acquire", "k"]));
    assert!(acquired.success().contains("/cron "), "{acquired:?}");
    assert_eq!(copies(&servers, "k"), 3);
}

#[test]
fn options_precede_variables_and_variables_the_file() {
    let (servers, scratch) = (RedisServers::start(1).unwrap(), Scratch::new("config-order"));
    let file = config(&scratch, &format!("{}REDLOCK_LABEL=file\n", lines(&servers)));
    let acquired = |key, command: &mut Command| {
        let answer = answer_of(command.args(["acquire", key]));
        answer.success().split(' ').next().unwrap().to_owned()
    };
    assert!(acquired("a", &mut with_file(&file, &[])).ends_with("/file"));
    let mut by_variable = with_file(&file, &[]);
    by_variable.env("REDLOCK_LABEL", "variable");
    assert!(acquired("b", &mut by_variable).ends_with("/variable"));
    let mut by_option = with_file(&file, &["--label", "option"]);
    by_option.env("REDLOCK_LABEL", "variable");
    assert!(acquired("c", &mut by_option).ends_with("/option"));
    let mut unset = with_file(&file, &[]);
    assert!(acquired("d", unset.env("REDLOCK_LABEL", "")).ends_with("/file"));
}

/// Masters of two sources would be one quorum of two lists.
#[test]
fn masters_of_the_file_apply_only_without_others() {
    let (ours, others) = (RedisServers::start(1).unwrap(), RedisServers::start(1).unwrap());
    let scratch = Scratch::new("config-masters");
    let file = config(&scratch, &lines(&others));
    let (url, list) = (ours.urls().remove(0), scratch.file("list"));
    fs::write(&list, &url).unwrap();
    for (key, option, variable) in [
        ("a", Some(&url), None),
        ("b", None, Some(("REDLOCK_NODES", url.clone()))),
        ("c", None, Some(("REDLOCK_NODES_FILE", list.display().to_string()))),
    ] {
        let mut command = with_file(&file, &["acquire", key]);
        command.args(option.iter().flat_map(|url| ["--node", url.as_str()])).envs(variable);
        answer_of(&mut command).success();
        assert_eq!((copies(&ours, key), copies(&others, key)), (1, 0), "{key}");
    }
}

fn refused(command: &mut Command) -> Answer {
    let answer = answer_of(command);
    assert_eq!((answer.code, answer.out.as_str()), (64, ""), "{answer:?}");
    answer
}

#[test]
fn bad_lines_are_wrong_usage_with_file_and_line() {
    let scratch = Scratch::new("config-bad");
    for (line, why) in [
        ("REDLOCK_NODE=redis://h", "unknown name REDLOCK_NODE"),
        ("REDLOCK_CONFIG=/x", "REDLOCK_CONFIG names this file"),
        ("REDLOCK_PREFIX=b", "REDLOCK_PREFIX is already set on line 2"),
        ("redis://:sesame@h", "it has no `=`"),
        ("redis://:sesame@h?a=b", "unknown name ***"),
        ("REDLOCK_NODES=redis://:sesame@h:99999", "port is not a number"),
        ("REDLOCK_MAX_TTL=soon", "write a duration as 500ms"),
        ("REDLOCK_MAX_TTL=2d", "must be between"),
        ("REDLOCK_LABEL=a/b", "for example: a-b"),
    ] {
        let file = config(&scratch, &format!("# ours\nREDLOCK_PREFIX=a\n{line}\n"));
        let mut command = with_file(&file, &["acquire", "k"]);
        if !line.starts_with("REDLOCK_NODES") {
            command.args(["--node", "redis://127.0.0.1:1"]);
        }
        let answer = refused(&mut command);
        let place = format!("line 3 of {}", file.display());
        assert!(answer.cause().contains(&place), "{answer:?}");
        assert!(answer.cause().contains(why), "{answer:?}");
        assert!(!answer.err.contains("sesame"), "{answer:?}");
    }
}

#[test]
fn named_file_must_exist() {
    for file in ["/nowhere/config", "/"] {
        let answer = refused(&mut with_file(&file.into(), &["status", "k"]));
        let said = format!("redlock: REDLOCK_CONFIG: reading {file}: ");
        assert!(answer.cause().starts_with(&said), "{answer:?}");
    }
}

/// It would be wrong if one job used the masters of another host's file.
#[test]
fn the_command_of_run_inherits_no_way_to_the_masters() {
    let (servers, scratch) = (RedisServers::start(1).unwrap(), Scratch::new("config-run"));
    let file = config(&scratch, &lines(&servers));
    let inherited = |words: &[&str]| {
        let mut run = with_file(&file, &["run", "k"]);
        answer_of(run.args(words).args(["--", "env"])).success().to_owned()
    };
    let named = format!("REDLOCK_CONFIG={}", file.display());
    assert!(!inherited(&[]).contains("REDLOCK_CONFIG="));
    assert!(inherited(&["--pass-nodes"]).contains(&named));
    let mut nested = with_file(&file, &["run", "k", "--pass-nodes", "--"]);
    nested.args([env!("CARGO_BIN_EXE_redlock"), "acquire", "l"]);
    answer_of(&mut nested).success();
}

#[test]
fn dev_reads_no_file() {
    // It would be refused: the file is none.
    let answer = answer_of(&mut with_file(&"/nowhere/config".into(), &["dev", "--node", "x"]));
    assert!(answer.cause().contains("starts its own masters"), "{answer:?}");
}

#[test]
fn doctor_prints_the_source_of_each_value_and_no_secret() {
    let (servers, scratch) = (RedisServers::start(1).unwrap(), Scratch::new("config-doctor"));
    let url = format!("redis://any:sesame@{}", servers[0].name());
    servers[0].command(&["ACL", "SETUSER", "any", "on", ">sesame", "~*", "+@all"]).unwrap();
    let text = format!("REDLOCK_NODES={url}\nREDLOCK_MAX_TTL=60s\nREDLOCK_PREFIX=f:\n");
    let file = config(&scratch, &text);
    let doctor = |words: &[&str]| {
        let mut doctor = with_file(&file, &["doctor", "--prefix", ""]);
        let answer = answer_of(doctor.args(words).env("REDLOCK_QUEUE", "on"));
        assert!(!answer.out.contains("sesame") && !answer.err.contains("sesame"), "{answer:?}");
        answer
    };
    let json = doctor(&["--json"]).json();
    let settings = json["settings"].as_array().unwrap();
    let of = |name: &str| {
        let mut found = settings.iter().filter(|setting| setting["name"] == name);
        let one = found.next().unwrap_or_else(|| panic!("{name} is missing"));
        let value = one["value"].as_str().map(str::to_owned);
        (value, one["source"].as_str().unwrap().to_owned())
    };
    let shown = format!("redis://***@{}", servers[0].name());
    for (name, value, source) in [
        ("REDLOCK_CONFIG", Some(file.to_str().unwrap()), "environment"),
        ("REDLOCK_NODES", Some(&*shown), "file"),
        ("REDLOCK_NODES_FILE", None, "default"),
        ("REDLOCK_USERNAME", None, "default"),
        ("REDLOCK_PREFIX", Some(""), "option"),
        ("REDLOCK_MAX_TTL", Some("1m"), "file"),
        ("REDLOCK_NODE_TIMEOUT", Some("50ms"), "default"),
        ("REDLOCK_PLAIN", Some("0"), "default"),
        ("REDLOCK_QUEUE", Some("on"), "environment"),
    ] {
        assert_eq!(of(name), (value.map(str::to_owned), source.to_owned()), "{name}");
    }
    assert_eq!(settings.len(), redlock_quorum::environment::SETTINGS.len());
    let people = doctor(&[]).out;
    let ends = |name: &str, end: &str| {
        people.lines().any(|line| line.contains(name) && line.ends_with(end))
    };
    let place = format!("1m  (line 2 of {})", file.display());
    assert!(
        ends("REDLOCK_MAX_TTL", &place) && ends("REDLOCK_PREFIX", "  none  (option)"),
        "{people}"
    );
}

/// A nested command cannot read the pipe again, so it gets the contents.
#[test]
fn masters_and_settings_may_come_from_a_pipe() {
    let servers = RedisServers::start(3).unwrap();
    let redlock = env!("CARGO_BIN_EXE_redlock");
    let run = format!("{redlock} run k -- true");
    let nested = format!("{redlock} run outer --pass-nodes -- {run}");
    for script in [
        format!(r#"REDLOCK_NODES_FILE=<(echo "$LIST") {run}"#),
        format!(r#"REDLOCK_NODES_FILE=<(echo "$LIST") {nested}"#),
        format!(r#"echo "$SETTINGS" | REDLOCK_CONFIG=/dev/stdin {run}"#),
        format!(r#"REDLOCK_CONFIG=<(echo "$SETTINGS") {nested}"#),
    ] {
        let mut shell = undisturbed("bash");
        shell.args(["-c", &script]).env_remove("REDLOCK_NODES").env("REDLOCK_CONFIG", "/dev/null");
        shell.env("REDLOCK_NODE_TIMEOUT", NODE_TIMEOUT);
        shell.env("LIST", servers.urls().join("\n")).env("SETTINGS", lines(&servers));
        answer_of(&mut shell).success();
    }
}

#[test]
fn endless_file_is_refused_immediately() {
    let scratch = Scratch::new("config-endless");
    let refuse = |name: &str, file: &str, why: &str| {
        let mut command = bare(["status", "k"]);
        if name != "NODES_FILE" {
            command.env("REDLOCK_NODES", "rediss://127.0.0.1:1");
        }
        let key = if name == "TLS_CERT" { file } else { "" };
        command.env("REDLOCK_TLS_KEY", key).env(format!("REDLOCK_{name}"), file);
        let said = format!("redlock: REDLOCK_{name}: reading {file}: {why}");
        let cause = refused(&mut command);
        assert!(cause.cause().starts_with(&said), "{cause:?}");
    };
    for name in ["CONFIG", "NODES_FILE", "PASSWORD_FILE", "TLS_CA", "TLS_CERT"] {
        refuse(name, "/dev/zero", "it has more than 1 MiB");
        refuse(name, scratch.file("").to_str().unwrap(), "Is a directory");
    }
    let pipe = scratch.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for name in ["PASSWORD_FILE", "TLS_CA", "TLS_CERT"] {
        let why = "it is a pipe, but is read again for each connection; use a regular file";
        refuse(name, pipe.to_str().unwrap(), why);
    }
}
