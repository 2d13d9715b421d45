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
    let malformed = format!("redis://me:{SECRET}@h:99999");
    assert_eq!(silent_about_it(bare(["status", "k", "--node", &malformed])).code, 64);
    assert_eq!(silent_about_it(bare(["-v", "acquire", &malformed, "--node", &url])).code, 69);
    let mut command = bare(["status", "k"]);
    command.env("REDLOCK_NODES", format!("{malformed},{malformed}"));
    assert_eq!(silent_about_it(command).code, 64);
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
    assert!(!answer.out.contains(&servers[0].port().to_string()), "no URL at all");
}
