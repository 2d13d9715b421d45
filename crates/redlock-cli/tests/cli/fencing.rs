//! Fencing tokens: what is printed, and what a command gets.

use redlock_testkit::RedisServers;

use crate::support::{answer_of, ask, redlock};

/// Prints the fencing token of the lock around it.
const SAY: &str = "echo ${REDLOCK_FENCING_TOKEN-none}";

#[test]
fn a_plain_lock_has_no_fencing_token() {
    let servers = RedisServers::start(3).unwrap();
    let line = ask(&servers, ["--plain", "acquire", "k"]);
    assert_eq!(line.success().split(' ').nth(1), Some("-"));
    let object = ask(&servers, ["acquire", "other", "--json", "--plain"]).json();
    assert!(object["fencing_token"].is_null(), "{object}");
    let mut command = redlock(&servers, ["acquire", "third"]);
    let line = answer_of(command.env("REDLOCK_PLAIN", "1"));
    assert_eq!(line.success().split(' ').nth(1), Some("-"));
}

#[test]
fn the_command_of_a_plain_lock_does_not_take_the_token_of_a_lock_around_it_for_its_own() {
    let servers = RedisServers::start(3).unwrap();
    let mut command = redlock(&servers, ["run", "--plain", "k", "--", "sh", "-c", SAY]);
    let inherited = answer_of(command.env("REDLOCK_FENCING_TOKEN", "96"));
    assert_eq!(inherited.success(), "none");
    let plain = format!("{} run inner -- sh -c '{SAY}'", env!("CARGO_BIN_EXE_redlock"));
    let words = ["--plain", "run", "k", "--pass-nodes", "--", "sh", "-c", plain.as_str()];
    assert_eq!(ask(&servers, words).success(), "none", "--plain is passed on with the masters");
}
