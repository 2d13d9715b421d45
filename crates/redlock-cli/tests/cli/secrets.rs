//! Passwords occur only in URLs.

use std::process::Command;

use redlock_testkit::{RedisServers, ServerOptions};

use crate::support::{Answer, answer_of, bare, redlock};

const SECRET: &str = "sesame";

fn silent_about_it(mut command: Command) -> Answer {
    let answer = answer_of(&mut command);
    assert!(!answer.out.contains(SECRET) && !answer.err.contains(SECRET), "{answer:?}");
    answer
}

#[test]
fn no_command_prints_a_password() {
    let servers = RedisServers::with(3, &ServerOptions::new().password(SECRET)).unwrap();
    let acquired = silent_about_it(redlock(&servers, ["-v", "acquire", "k"]));
    let token = acquired.success().split(' ').next().unwrap();
    assert_eq!(silent_about_it(redlock(&servers, ["-v", "acquire", "k"])).code, 75);
    assert_eq!(silent_about_it(redlock(&servers, ["-v", "status", "k"])).code, 0);
    assert_eq!(silent_about_it(redlock(&servers, ["-v", "status", "k", "--json"])).code, 0);
    assert_eq!(silent_about_it(redlock(&servers, ["-v", "extend", "k", token])).code, 0);
    assert_eq!(silent_about_it(redlock(&servers, ["-v", "release", "k", token])).code, 0);
    assert_eq!(silent_about_it(redlock(&servers, ["--help"])).code, 0);
    assert_eq!(silent_about_it(redlock(&servers, ["-v", "acquire", "k"])).code, 0);
    assert_eq!(silent_about_it(redlock(&servers, ["-v", "status"])).code, 0);
    let force = redlock(&servers, ["-v", "release", "--force", "k", "--yes"]);
    assert_eq!(silent_about_it(force).code, 0);
    servers[0].kill();
    servers[1].kill();
    assert_eq!(silent_about_it(redlock(&servers, ["-v", "acquire", "k"])).code, 69);
}

#[test]
fn rejected_or_misplaced_password_is_not_printed() {
    let servers = RedisServers::with(1, &ServerOptions::new().password("other")).unwrap();
    let url = format!("redis://:{SECRET}@{}", servers[0].name());
    assert_eq!(silent_about_it(bare(["status", "k", "--node", &url])).code, 69);
    assert_eq!(silent_about_it(bare(["status", "k", &url])).code, 64);
    assert_eq!(silent_about_it(bare([&url])).code, 64);
    assert_eq!(silent_about_it(bare(["status", "k", "--nodes", &url])).code, 64);
    assert_eq!(silent_about_it(bare(["status", "k", "--ttl", &url])).code, 64);
    assert_eq!(silent_about_it(bare(["status", "k", "--node-timeout", &url])).code, 64);
    let log_in = format!("me:{SECRET}@h");
    for option in ["--quarantine", "--max-ttl", "--node-timeout", "--ttl", "--wait"] {
        assert_eq!(silent_about_it(bare(["acquire", "k", option, &log_in])).code, 64);
    }
    assert_eq!(silent_about_it(bare(["status", "k", &log_in])).code, 64);
    assert_eq!(silent_about_it(bare([&log_in])).code, 64);
    assert_eq!(silent_about_it(bare(["acquire", "k", &format!("--{log_in}")])).code, 64);
    let malformed = format!("redis://me:{SECRET}@h:99999");
    assert_eq!(silent_about_it(bare(["status", "k", "--node", &malformed])).code, 64);
    assert_eq!(silent_about_it(bare(["-v", "acquire", &malformed, "--node", &url])).code, 69);
    let mut command = bare(["status", "k"]);
    command.env("REDLOCK_NODES", format!("{malformed},{malformed}"));
    assert_eq!(silent_about_it(command).code, 64);
}

/// A password in the wrong variable.
#[test]
fn doctor_shows_no_setting_that_may_be_a_secret() {
    let servers = RedisServers::start(1).unwrap();
    for (variable, value) in [
        ("REDLOCK_PREFIX", "redis://me:sesame@h/"),
        ("REDLOCK_PREFIX", "me:sesame@h"),
        ("REDLOCK_LABEL", "me:sesame@h/"),
        ("REDLOCK_LABEL", "redis://:sesame"),
        ("REDLOCK_USERNAME", "me:sesame"),
        ("REDLOCK_QUARANTINE", "redis://:sesame"),
        ("REDLOCK_PLAIN", "me:sesame@h"),
        ("REDLOCK_NODE_TIMEOUT", "redis://:sesame"),
        ("REDLOCK_NODES", "redis://me%3Asesame%40h"),
        ("REDLOCK_NODES", "redis://me:sesame%ff@h"),
    ] {
        for words in [&["doctor"][..], &["doctor", "--json"], &["acquire", "k"], &["-v", "status"]]
        {
            let mut command = redlock(&servers, []);
            command.args(words).env("REDLOCK_PASSWORD_FILE", "/dev/null").env(variable, value);
            if variable != "REDLOCK_USERNAME" {
                command.env_remove("REDLOCK_PASSWORD_FILE");
            }
            let shown = silent_about_it(command);
            assert!(!shown.err.contains("panicked"), "{shown:?}");
        }
    }
}

#[test]
fn doctor_hides_a_label_like_a_log_in() {
    let servers = RedisServers::start(1).unwrap();
    let mut command = redlock(&servers, ["doctor"]);
    command.env("REDLOCK_LABEL", "me:sesame@h");
    assert_eq!(silent_about_it(command).code, 0);
}

#[test]
fn command_does_not_inherit_the_masters() {
    let servers =
        RedisServers::with(3, &ServerOptions::new().password(SECRET).prefix("p:")).unwrap();
    let script = "env; tr '\\0' '\\n' < /proc/self/environ; tr '\\0' '\\n' < /proc/$$/cmdline";
    let mut command = redlock(&servers, ["run", "k", "--", "sh", "-c", script]);
    command.env("REDLOCK_NODES_FILE", "/some/file").env("REDLOCK_PREFIX", "p:");
    let answer = silent_about_it(command);
    assert!(answer.success().contains("REDLOCK_TOKEN="));
    for name in ["REDLOCK_NODES", "REDLOCK_TLS"] {
        assert!(!answer.out.contains(name), "{name}");
    }
    // A token or an id can contain the digits of the port.
    assert!(!answer.out.contains(&format!(":{}", servers[0].port())), "no URL at all");
}
