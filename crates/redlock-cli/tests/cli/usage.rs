//! Wrong usage, help, and what packages install.

use crate::support::{Answer, answer_of, bare};

fn ask<const N: usize>(words: [&str; N]) -> Answer {
    answer_of(bare(words).env("REDLOCK_NODES", "redis://127.0.0.1:1"))
}

#[test]
fn wrong_usage_exits_with_64_and_one_line() {
    for (answer, cause) in [
        (ask([]), "no command"),
        (ask(["nonsense"]), "nonsense"),
        (ask(["run", "k"]), "COMMAND"),
        (ask(["run", "k", "true"]), "redlock run k -- true"),
        (ask(["run", "--", "true"]), "KEY"),
        (ask(["run", "k", "--ttl", "soon", "--", "true"]), "500ms"),
        (ask(["acquire", "k", "--ttl", "-5"]), "500ms"),
        (ask(["acquire", "k", "--wait", "-1"]), "`forever`"),
        (ask(["status", "k", "--node-timeout", "-1"]), "500ms"),
        (ask(["init", "--floor", "ten"]), "an integer below 2^53"),
        (ask(["init", "--floor", "9007199254740992"]), "an integer below 2^53"),
        (ask(["run", "k", "--ttl", "1ms", "--", "true"]), "must be at least 10ms"),
        (ask(["run", "k", "--ttl", "25h", "--", "true"]), "exceeds max_ttl (1d)"),
        (
            ask(["run", "k", "--max-hold", "0", "--", "true"]),
            "--max-hold must be at least 1ms (got 0s)",
        ),
        (ask(["run", "k", "-n", "--wait", "1s", "--", "true"]), "cannot be used with"),
        (ask(["acquire", "k", "--node-timeout", "20s"]), "at most a quarter of"),
        (ask(["acquire", "k", "-E", "256"]), "256"),
        (ask(["acquire", ""]), "KEY is empty"),
        (ask(["acquire", "redlock-quorum:1"]), "reserved"),
        (ask(["status", ""]), "empty"),
        (ask(["release", "k", "two words"]), "token"),
        (ask(["status", "k", "--node", "redis://a", "--node", "redis://a"]), "listed twice"),
        (ask(["--node", "redis://a", "status", "k", "--node", "redis://b"]), "--node"),
        (ask(["status", "k", "--tls-cert", "cert.pem"]), "--tls-key"),
        (ask(["status", "k", "--tls-ca", "/nowhere/ca.pem"]), "/nowhere/ca.pem"),
        (ask(["status", "k", "--node", "rediss://a", "--tls-ca", "/dev/null"]), "TLS: "),
        (ask(["dev", "--nodes", "16"]), "16"),
        (ask(["generate", "man", "nonsense"]), "nonsense"),
        (answer_of(&mut bare(["status", "k"])), "REDLOCK_NODES_FILE"),
    ] {
        assert_eq!((answer.code, answer.out.as_str()), (64, ""), "{answer:?}");
        assert!(answer.cause().contains(cause), "{cause}: {answer:?}");
    }
}

#[test]
fn help_and_version_exit_with_0() {
    let help = ask(["--help"]);
    for part in ["Examples:", "Exit codes:", "REDLOCK_NODES_FILE", "  79 "] {
        assert!(help.success().contains(part), "{part}");
    }
    assert!(help.out.contains("generate"), "files of packages are not secret");
    assert!(ask(["run", "--help"]).success().contains("REDLOCK_FENCING_TOKEN"));
    assert!(ask(["-h"]).success().contains("redlock run backup"));
    assert!(ask(["--version"]).success().starts_with("redlock "));
}

#[test]
fn help_has_master_options_for_commands_that_use_them() {
    for command in ["run", "acquire", "extend", "release", "status", "init", "doctor"] {
        let help = ask([command, "--help"]);
        for option in ["--node URL", "--tls-ca FILE", "--prefix TEXT", "Global options"] {
            assert!(help.success().contains(option), "{command}: {option}");
        }
    }
    for command in ["dev", "generate"] {
        let help = ask([command, "--help"]);
        for option in ["--node ", "--tls-ca", "REDLOCK_NODES", "--verbose"] {
            let help = help.success().replace("REDLOCK_NODES=", "");
            assert!(!help.contains(option), "{command}: {option}");
        }
        let takes_a_namespace = help.success().contains("--prefix");
        assert_eq!(takes_a_namespace, command == "dev", "it admits its masters for one");
    }
}

#[test]
fn options_may_be_anywhere_before_the_command() {
    for words in [
        ["--node-timeout", "20", "run", "k", "--ttl", "0.5m", "--", "true"],
        ["run", "k", "--ttl", "30s", "--node-timeout", "20000ms", "--", "true"],
    ] {
        let answer = ask(words);
        assert!(
            answer.cause().contains("node timeout 20s must be at most a quarter of the TTL 30s"),
            "{answer:?}"
        );
    }
}

#[test]
fn the_man_page_and_the_completions_know_every_command() {
    let man = ask(["generate", "man"]);
    for command in ["run", "acquire", "extend", "release", "status", "dev"] {
        assert!(man.success().contains(&format!("redlock\\-{command}")), "{command}");
        assert!(ask(["generate", "man", command]).success().contains(".SH OPTIONS"));
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(ask(["generate", "completions", shell]).success().contains("kill-after"));
    }
}
