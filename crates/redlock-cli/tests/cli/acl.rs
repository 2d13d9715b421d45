//! `redlock acl`: the user that masters need, and what a user lacks.

use std::io::Write;
use std::process::{Command, Stdio};

use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

use crate::support::{Answer, NODE_TIMEOUT, answer_of, ask, bare, redlock};

const PREFIX: &str = "p q*:";

/// Masters for the prefix, which has what patterns and lines must escape.
fn masters(count: usize) -> RedisServers {
    RedisServers::with(count, &ServerOptions::new().prefix(PREFIX)).unwrap()
}

fn acl(servers: &RedisServers) -> Answer {
    ask(servers, ["acl", "--prefix", PREFIX])
}

/// Creates the user of this line, by the words that `redis-cli` makes of it.
fn create_user(server: &RedisServer, lines: &str) {
    let mut cli = Command::new("redis-cli");
    cli.args(["-p", &server.port().to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cli = cli.spawn().unwrap();
    let lines = lines.replace(">PASSWORD", ">secret");
    cli.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let said = String::from_utf8(cli.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said.trim(), "OK", "{lines}");
}

fn as_user(server: &RedisServer, words: &[&str]) -> Answer {
    let url = server.url().replace("redis://", "redis://redlock:secret@");
    let mut command = bare([]);
    command.env("REDLOCK_NODES", url).env("REDLOCK_PREFIX", PREFIX);
    answer_of(command.env("REDLOCK_NODE_TIMEOUT", NODE_TIMEOUT).args(words))
}

fn rights(line: &str) -> Vec<&str> {
    line.split_whitespace().filter(|word| word.starts_with('+')).collect()
}

#[test]
fn printed_line_makes_a_user_with_the_rights_of_all_commands() {
    let servers = masters(1);
    let printed = acl(&servers);
    let begin = "ACL SETUSER redlock on >PASSWORD ~p?q\\*:* ";
    assert!(printed.success().starts_with(begin), "{printed:?}");
    assert!(printed.err.contains(&servers[0].name()), "a note names the master: {printed:?}");
    create_user(&servers[0], &printed.out);
    let all = as_user(&servers[0], &["acl", "--check"]);
    let said = format!("{}: user redlock has all rights", servers[0].name());
    assert_eq!(all.success(), said);
    let token = as_user(&servers[0], &["acquire", "k"]).success().to_owned();
    let token = token.split(' ').next().unwrap();
    for words in [
        &["status"][..],
        &["status", "k"],
        &["extend", "k", token],
        &["release", "k", token],
        &["run", "k", "--once-in", "1h", "--", "true"],
        &["release", "--force", "--mark", "k", "--yes"],
        &["init", "--yes"],
        &["doctor"],
    ] {
        as_user(&servers[0], words).success();
    }
}

/// The check finds a missing right, and so does each command that needs it.
#[test]
fn each_command_names_the_missing_right() {
    let servers = masters(1);
    let server = &servers[0];
    let line = acl(&servers).success().to_owned() + " ";
    create_user(server, &line);
    assert!(rights(&line).len() > 25, "{line}");
    let optional = ["+client|setinfo", "+command|info", "+delifeq", "+delex"];
    for right in rights(&line).into_iter().filter(|right| !optional.contains(right)) {
        // Not every server can remove the right to a subcommand.
        server.command(&["ACL", "DELUSER", "redlock"]).unwrap();
        create_user(server, &line.replace(&format!(" {right} "), " "));
        let checked = as_user(server, &["acl", "--check"]);
        assert_eq!(checked.code, 1, "{right}: {checked:?}");
        let lacks = format!("user redlock lacks {right}");
        assert_eq!(checked.out.trim_end(), format!("{}: {lacks}", server.name()));
        assert!(checked.cause().contains(&lacks), "{checked:?}");
        names_it(server, right);
        server.command(&["ACL", "SETUSER", "redlock", right]).unwrap();
    }
}

/// Each command works without the right, or names it.
fn names_it(server: &RedisServer, right: &str) {
    let admin = |words: &[&str]| {
        let mut command = bare([]);
        command.env("REDLOCK_NODES", server.url()).env("REDLOCK_PREFIX", PREFIX).args(words);
        answer_of(&mut command)
    };
    let held = admin(&["acquire", "held", "--ttl", "50s"]).success().to_owned();
    let token = held.split(' ').next().unwrap();
    for words in [
        &["status"][..],
        &["status", "held"],
        &["acquire", "k", "-n"],
        &["run", "l", "-n", "--", "true"],
        &["init", "--yes"],
        &["doctor"],
        &["extend", "held", token],
        &["release", "held", token],
    ] {
        let answer = as_user(server, words);
        let said = format!("{}{}", answer.out, answer.err).to_lowercase();
        // The server's own words have it in quotation marks.
        let is_named = said.contains(right) || said.contains(&(right.replace('+', "'") + "'"));
        assert!(answer.code == 0 || is_named, "{right}: {words:?}: {answer:?}");
    }
    admin(&["release", "--force", "held", "--yes"]);
    for key in ["k", "l"] {
        server.command(&["DEL", &format!("{PREFIX}{key}")]).unwrap();
    }
}

#[test]
fn missing_keys_and_channels_are_named() {
    let servers = masters(1);
    create_user(&servers[0], &acl(&servers).out);
    for (rule, lacks) in [
        (&["resetkeys", "~p?q\\*:redlock-quorum:1*"][..], "~p q*:*"),
        (&["resetkeys", "~p?q\\*:*", "resetchannels"], "&p q*:redlock-quorum:1:go:*"),
    ] {
        servers[0].command(&[&["ACL", "SETUSER", "redlock"], rule].concat()).unwrap();
        let checked = as_user(&servers[0], &["acl", "--check"]);
        assert_eq!(checked.code, 1, "{checked:?}");
        assert!(checked.cause().contains(&format!("lacks {lacks}; ")), "{checked:?}");
    }
}

/// The database is part of the log-in, so that nothing else can be tried.
#[test]
fn url_with_a_database_needs_select() {
    let servers = masters(1);
    let mut printed = bare(["acl", "--node", &format!("{}/5", servers[0].url())]);
    let printed = answer_of(&mut printed);
    assert!(printed.success().ends_with(" +select") || printed.out.contains(" +select +"));
    create_user(&servers[0], &acl(&servers).out);
    let url = servers[0].url().replace("redis://", "redis://redlock:secret@");
    let checked = answer_of(&mut bare(["acl", "--check", "--node", &format!("{url}/5")]));
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.cause().contains("lacks +select"), "{checked:?}");
}

#[test]
fn unexaminable_masters_are_named() {
    let servers = masters(2);
    servers[1].kill();
    let printed = acl(&servers);
    assert_eq!(printed.success().lines().count(), 1, "{printed:?}");
    let note = format!("{} could not be examined: connection refused", servers[1].url());
    assert!(printed.err.contains(&note), "{printed:?}");
    let checked = ask(&servers, ["acl", "--check", "--prefix", PREFIX]);
    assert_eq!(checked.code, 69, "{checked:?}");
    assert!(checked.cause().contains(&note), "{checked:?}");
    assert!(checked.out.contains(" has all rights"), "{checked:?}");
    servers[0].kill();
    let newest = acl(&servers);
    assert!(newest.success().contains(" &p?q\\*:redlock-quorum:1:go:* "), "{newest:?}");
    assert!(newest.out.contains(" +client|setinfo"), "{newest:?}");
    assert!(newest.err.contains("line 1 is for the newest version"), "{newest:?}");
}

#[test]
fn wrong_password_is_not_a_missing_right() {
    let servers = masters(1);
    let url = servers[0].url().replace("redis://", "redis://redlock:wrong@");
    let checked = answer_of(&mut bare(["acl", "--check", "--node", &url]));
    assert!(checked.code == 69 && checked.cause().contains("WRONGPASS"), "{checked:?}");
    assert!(!checked.err.contains("wrong@"), "{checked:?}");
    let mut none = redlock(&servers, ["acl"]);
    assert_eq!(answer_of(none.env_remove("REDLOCK_NODES")).code, 64);
}

/// Without a quarantine, persistence matters, and the user may not read it.
#[test]
fn user_for_clients_without_a_quarantine_has_no_problem() {
    let options = ServerOptions::new().prefix(PREFIX).brand_new();
    let servers = RedisServers::with(1, &options).unwrap();
    let printed = ask(&servers, ["acl", "--prefix", PREFIX, "--quarantine", "off"]);
    create_user(&servers[0], printed.success());
    let doctor = as_user(&servers[0], &["doctor", "--quarantine", "off"]);
    let said = "info: does not show whether it may lose acknowledged writes";
    assert!(doctor.success().contains(said), "{doctor:?}");
    assert!(doctor.out.contains("no problem was found"), "{doctor:?}");
}
