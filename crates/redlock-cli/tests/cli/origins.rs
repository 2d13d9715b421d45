//! Invalid values: the variable, its source, and the reason.

use std::process::Command;

use redlock_testkit::RedisServers;

use crate::support::{Answer, Scratch, answer_of, ask, bare, copies, redlock};

fn refused(mut command: Command) -> Answer {
    let answer = answer_of(&mut command);
    assert_eq!((answer.code, answer.out.as_str()), (64, ""), "{answer:?}");
    answer
}

#[test]
fn bad_url_is_reported_with_place_reason_and_form() {
    for (url, why) in [
        ("redis://h:99999", "port is not a number from 1 to 65535"),
        ("redis://:pa/ss@h", "write / as %2F"),
        ("10.0.0.1:6379", "no scheme"),
        ("redis://h :1", "a space in it"),
        ("redis://h:1 # the first", "a comment after it"),
        ("redis://h:1?timeout=5", "unknown option"),
    ] {
        let scratch = Scratch::new("urls");
        let file = scratch.file("nodes");
        std::fs::write(&file, format!("# ours\nredis://a:1\n{url}\n")).unwrap();
        let mut by_file = bare(["status", "k"]);
        by_file.env("REDLOCK_NODES_FILE", &file);
        let mut by_list = bare(["status", "k"]);
        by_list.env("REDLOCK_NODES", format!("redis://a:1,{url}"));
        let in_file = format!("redlock: REDLOCK_NODES_FILE: line 3 of {}: ", file.display());
        for (command, origin) in [
            (by_file, in_file.as_str()),
            (by_list, "redlock: REDLOCK_NODES, URL 2 of 2: "),
            (bare(["status", "k", "--node", url]), "redlock: --node: "),
        ] {
            let answer = refused(command);
            assert!(answer.cause().starts_with(origin), "{answer:?}");
            assert!(answer.cause().contains(why), "{answer:?}");
            let form = "write redis://[user:password@]host[:port][/db], rediss://";
            assert!(answer.cause().contains(form), "the advice is shown: {answer:?}");
        }
    }
}

#[test]
fn invalid_variable_is_refused_by_its_name() {
    for (variable, value, cause) in [
        ("REDLOCK_NODE_TIMEOUT", "soon", "write a duration as 500ms"),
        (
            "REDLOCK_NODE_TIMEOUT",
            "20s",
            "node timeout 20s must be at most a quarter of the TTL 10s, 2.5s",
        ),
        ("REDLOCK_NODE_TIMEOUT", "0", "must be greater than zero"),
        ("REDLOCK_PLAIN", "maybe", "expected 1 or 0"),
        ("REDLOCK_MAX_TTL", "never", "write a duration as 500ms"),
        ("REDLOCK_MAX_TTL", "2d", "must be between"),
        ("REDLOCK_PREFIX", "redlock-quorum:", "reserved word"),
        ("REDLOCK_TLS_CA", "/nowhere/ca.pem", "reading /nowhere/ca.pem"),
        ("REDLOCK_TLS_KEY", "/nowhere/key.pem", "is set without REDLOCK_TLS_CERT"),
        ("REDLOCK_NODES_FILE", "/nowhere/nodes", "reading /nowhere/nodes"),
    ] {
        let mut command = bare(["acquire", "k", "--ttl", "10s"]);
        if variable != "REDLOCK_NODES_FILE" {
            command.env("REDLOCK_NODES", "redis://127.0.0.1:1");
        }
        let answer = refused(std::mem::replace(command.env(variable, value), bare([])));
        assert!(answer.cause().starts_with(&format!("redlock: {variable}")), "{answer:?}");
        assert!(answer.cause().contains(cause), "{answer:?}");
    }
}

/// `doctor` acquires no lock, so it has no --ttl and no label.
#[test]
fn doctor_refuses_what_other_commands_refuse_in_its_own_words() {
    let doctor = |variable: &str, value: &str| {
        let mut command = bare(["doctor"]);
        command.env("REDLOCK_NODES", "redis://127.0.0.1:1").env(variable, value);
        refused(command)
    };
    let answer = doctor("REDLOCK_NODE_TIMEOUT", "20s");
    let said =
        "redlock: REDLOCK_NODE_TIMEOUT: node timeout 20s must be at most a quarter of the TTL";
    assert!(answer.cause().starts_with(said) && !answer.err.contains("--ttl"), "{answer:?}");
}

#[test]
fn invalid_label_is_a_finding_of_doctor() {
    let servers = RedisServers::start(1).unwrap();
    let answer = answer_of(redlock(&servers, ["doctor"]).env("REDLOCK_LABEL", "a b"));
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.out.contains("error: REDLOCK_LABEL: the label \"a b\" is not"), "{answer:?}");
}

#[test]
fn the_command_line_wins_and_is_named_as_itself() {
    let mut command = bare(["acquire", "k", "--max-ttl", "2d"]);
    command.env("REDLOCK_NODES", "redis://127.0.0.1:1").env("REDLOCK_MAX_TTL", "never");
    let answer = refused(command);
    assert!(
        answer.cause().starts_with("redlock: max_ttl must be between 10ms and 1d (got 2d)"),
        "{answer:?}"
    );
}

#[test]
fn empty_variable_is_unset() {
    let servers = RedisServers::start(1).unwrap();
    let mut command = redlock(&servers, ["acquire", "k"]);
    for name in ["NODE_TIMEOUT", "PREFIX", "MAX_TTL", "LABEL", "TLS_CA", "TLS_CERT", "TLS_KEY"] {
        command.env(format!("REDLOCK_{name}"), "");
    }
    answer_of(&mut command).success();
    assert_eq!(copies(&servers, "k"), 1);
    let mut command = bare(["status", "k"]);
    command.env("REDLOCK_NODES", "").env("REDLOCK_NODES_FILE", "");
    assert!(refused(command).cause().contains("no masters configured"));
}

#[test]
fn a_file_without_masters_is_named() {
    let scratch = Scratch::new("nodes");
    let file = scratch.file("nodes");
    std::fs::write(&file, "# later\n\n").unwrap();
    let mut command = bare(["status", "k"]);
    command.env("REDLOCK_NODES_FILE", &file);
    let said = format!("redlock: REDLOCK_NODES_FILE: {} names no masters", file.display());
    let answer = refused(command);
    assert!(answer.cause().starts_with(&said), "{answer:?}");
}

#[test]
fn bad_certificates_are_named_by_option_and_file() {
    let scratch = Scratch::new("tls");
    let file = scratch.file("empty.pem");
    std::fs::write(&file, "").unwrap();
    let name = file.display().to_string();
    let node = ["status", "k", "--node", "rediss://127.0.0.1:1"];
    let mut by_option = bare(node);
    by_option.args(["--tls-ca", &name]);
    let mut by_variable = bare(node);
    by_variable.env("REDLOCK_TLS_CA", &name);
    for (command, origin) in [(by_option, "--tls-ca"), (by_variable, "REDLOCK_TLS_CA")] {
        let answer = refused(command);
        let said = format!("redlock: {origin} {name}: TLS: the CA: there is no certificate");
        assert!(answer.cause().starts_with(&said), "{answer:?}");
    }
}

/// Cut or changed, it would name another than the one who was meant.
#[test]
fn invalid_label_is_wrong_usage_and_names_its_origin() {
    let node = ["--node", "redis://127.0.0.1:1", "acquire", "k"];
    let mut by_option = bare(node);
    by_option.args(["--label", "deploy of 1.2/eu"]);
    let mut by_variable = bare(node);
    by_variable.env("REDLOCK_LABEL", "x".repeat(65));
    for (command, origin, fits) in [
        (by_option, "--label", "deploy-of-1.2-eu"),
        (by_variable, "REDLOCK_LABEL", &"x".repeat(64)),
    ] {
        let answer = refused(command);
        assert!(answer.cause().starts_with(&format!("redlock: {origin}: ")), "{answer:?}");
        let fix = format!("1 to 64 of A-Z a-z 0-9 . _ @ : -; for example: {fits}");
        assert!(answer.cause().ends_with(&fix), "{answer:?}");
    }
}

/// In an outage a bad variable must not keep anyone from looking, or from releasing.
#[test]
fn invalid_label_affects_only_commands_that_acquire() {
    let servers = RedisServers::start(1).unwrap();
    let acquired = ask(&servers, ["acquire", "k"]);
    let token = acquired.success().split(' ').next().unwrap();
    for words in [
        "status k",
        "status",
        "init --yes",
        &format!("extend k {token}"),
        &format!("release k {token}"),
        "release --force k --yes",
    ] {
        let mut command = redlock(&servers, []);
        command.args(words.split(' ')).env("REDLOCK_LABEL", "deploy of 1.2/eu");
        let answer = answer_of(&mut command);
        assert!(answer.code != 64 && !answer.err.contains("REDLOCK_LABEL"), "{words}: {answer:?}");
    }
    assert_eq!(copies(&servers, "k"), 0);
    let mut run = redlock(&servers, ["run", "k", "--", "true"]);
    refused(std::mem::replace(run.env("REDLOCK_LABEL", "deploy of 1.2/eu"), bare([])));
}

#[test]
fn the_label_is_in_the_token_and_names_the_process_by_default() {
    let servers = RedisServers::start(1).unwrap();
    let token = |mut command: Command| {
        let answer = answer_of(&mut command);
        answer.success().split(' ').next().unwrap().to_owned()
    };
    let mut by_default = redlock(&servers, ["acquire", "a"]);
    by_default.env("LOGNAME", "ann");
    assert!(token(by_default).contains("/ann@"));
    let given = redlock(&servers, ["acquire", "b", "--label", "deploy-of-1.2-eu"]);
    assert!(token(given).ends_with("/deploy-of-1.2-eu"));
    let mut by_variable = redlock(&servers, ["acquire", "c"]);
    by_variable.env("REDLOCK_LABEL", "x".repeat(64));
    assert!(token(by_variable).ends_with(&format!("/{}", "x".repeat(64))));
    let held = ask(&servers, ["acquire", "b"]);
    assert!(held.cause().contains("/deploy-of-1.2-eu, expires in"), "{held:?}");
    let status = ask(&servers, ["status", "b"]);
    assert!(status.success().contains("/deploy-of-1.2-eu, expires in"), "{status:?}");
}
