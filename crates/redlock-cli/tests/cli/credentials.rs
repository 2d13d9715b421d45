//! User and password apart from the URLs.

use std::fs;
use std::path::Path;
use std::process::Command;

use redlock_testkit::lab::text;
use redlock_testkit::{RedisServers, ServerOptions};

use crate::support::{Answer, Running, Scratch, answer_of, bare, poll};

const SECRET: &str = "sesame";

/// Starts masters that require a password, and creates a user.
fn masters(password: &str) -> RedisServers {
    let servers = RedisServers::with(3, &ServerOptions::new().password("admin")).unwrap();
    set_password(&servers, password);
    servers
}

fn set_password(servers: &RedisServers, password: &str) {
    for server in servers.iter() {
        let password = format!(">{password}");
        let user = ["ACL", "SETUSER", "app", "on", "resetpass", &password, "~*", "+@all"];
        server.command(&user).unwrap();
        // Servers before 6.2 have no rights to channels.
        let _ = server.command(&["ACL", "SETUSER", "app", "&*"]);
    }
}

/// A command with the URLs of the masters without credentials, and the file.
fn with_file(servers: &RedisServers, file: &Path) -> Command {
    let urls: Vec<_> = servers.iter().map(|server| format!("redis://{}", server.name())).collect();
    let mut command = bare([]);
    command.env("REDLOCK_NODES", urls.join(","));
    command.env("REDLOCK_USERNAME", "app").env("REDLOCK_PASSWORD_FILE", file);
    command
}

#[test]
fn each_command_logs_in_with_the_user_and_the_password_file() {
    let (servers, scratch) = (masters(SECRET), Scratch::new("password"));
    let file = scratch.file("password");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    let ask = |words: &[&str]| {
        let answer = answer_of(with_file(&servers, &file).args(words));
        assert!(!answer.out.contains(SECRET) && !answer.err.contains(SECRET), "{answer:?}");
        answer.success().to_owned()
    };
    ask(&["acquire", "k"]);
    assert!(ask(&["status"]).starts_with("k  held by "));
    ask(&["release", "--force", "k", "--yes"]);
    ask(&["doctor"]);
    ask(&["init", "--yes"]);
    let inherited = ask(&["run", "k", "--", "env"]);
    for name in ["REDLOCK_USERNAME", "REDLOCK_PASSWORD_FILE"] {
        assert!(!inherited.contains(name), "{inherited}");
        assert!(ask(&["run", "k", "--pass-nodes", "--", "env"]).contains(name));
    }
}

#[test]
fn credentials_of_a_url_precede_the_password_file() {
    let (servers, scratch) = (masters("other"), Scratch::new("password-url"));
    let file = scratch.file("password");
    fs::write(&file, "wrong").unwrap();
    let urls = servers.urls().join(",");
    let mut command = with_file(&servers, &file);
    answer_of(command.env("REDLOCK_NODES", urls).args(["acquire", "k"])).success();
    let refused = answer_of(with_file(&servers, &file).args(["acquire", "k"]));
    assert!(refused.code == 69 && refused.cause().contains("WRONGPASS"), "{refused:?}");
}

/// The lock of a job that runs for days outlives its password.
#[test]
fn password_rotated_during_a_job_is_read_again() {
    let (servers, scratch) = (masters("one"), Scratch::new("password-rotates"));
    let (file, end) = (scratch.file("password"), scratch.file("end"));
    fs::write(&file, "one\n").unwrap();
    let script = format!("until [ -e {} ]; do sleep 0.05; done", end.display());
    let mut run = with_file(&servers, &file);
    run.args(["run", "k", "--ttl", "8s", "--", "sh", "-c", &script]);
    let run = Running::start(std::mem::replace(&mut run, bare([])));
    poll("the lock is held", || (copies(&servers) == 3).then_some(()));
    set_password(&servers, "two");
    fs::write(&file, "two\n").unwrap();
    for server in servers.iter() {
        server.command(&["CLIENT", "KILL", "USER", "app"]).unwrap();
    }
    let is_back = |clients: String| clients.contains("user=app");
    let all_are = || servers.iter().all(|s| is_back(text(s, &["CLIENT", "LIST"])));
    poll("the job is connected again", || all_are().then_some(()));
    fs::write(&end, "").unwrap();
    let answer: Answer = run.answer();
    answer.success();
    assert_eq!(copies(&servers), 0, "it is released with the new password");
}

fn copies(servers: &RedisServers) -> i64 {
    servers.iter().map(|server| text::<i64>(server, &["EXISTS", "k"])).sum()
}

#[test]
fn password_file_without_a_password_is_wrong_usage() {
    let scratch = Scratch::new("password-bad");
    let empty = scratch.file("empty");
    fs::write(&empty, "\n").unwrap();
    let ask = |file: &str| {
        let mut command = bare(["status", "k", "--node", "redis://127.0.0.1:1"]);
        let answer = answer_of(command.env("REDLOCK_PASSWORD_FILE", file));
        assert_eq!((answer.code, answer.out.as_str()), (64, ""), "{answer:?}");
        assert!(!answer.err.contains(SECRET), "{answer:?}");
        answer.cause().to_owned()
    };
    let said = ask(empty.to_str().unwrap());
    assert!(said.contains("/empty: it has no password; write one line"), "{said}");
    let lines = scratch.file("lines");
    fs::write(&lines, format!("{SECRET}\n{SECRET}\n")).unwrap();
    let said = ask(lines.to_str().unwrap());
    let begin = format!("redlock: REDLOCK_PASSWORD_FILE: line 2 of {}: ", lines.display());
    assert!(said.starts_with(&begin) && said.contains("a password has one line"), "{said}");
    let marked = scratch.file("marked");
    fs::write(&marked, format!("\u{feff}{SECRET}\n")).unwrap();
    let said = ask(marked.to_str().unwrap());
    assert!(said.contains("/marked: it begins with a byte-order mark"), "{said}");
    let said = ask("/nowhere/password");
    assert!(said.starts_with("redlock: REDLOCK_PASSWORD_FILE: reading /nowhere/"), "{said}");
    assert!(ask(SECRET).contains("reading ***: "), "the password in the place of its file");
    let mut alone = bare(["status", "k", "--node", "redis://127.0.0.1:1"]);
    let answer = answer_of(alone.env("REDLOCK_USERNAME", "app"));
    let said = "redlock: REDLOCK_USERNAME: it is set without REDLOCK_PASSWORD_FILE";
    assert!(answer.code == 64 && answer.cause().starts_with(said), "{answer:?}");
}
