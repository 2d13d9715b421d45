//! Keys that `doctor` and `status` name: those in the place of locks, and those of the library.

use redlock_testkit::{RedisServer, RedisServers};
use serde_json::Value;

use crate::doctor::findings;
use crate::support::{Answer, ask, prefixed};

const RESERVATION: &str = "redlock-quorum:next:0123456789abcdef";

/// Returns the findings about the first master, with their fixes.
fn found(servers: &RedisServers, answer: &Answer) -> Vec<(String, String)> {
    let object = answer.json();
    let whats = findings(&object, Some(servers[0].name()));
    let all = object["findings"].as_array().unwrap().iter();
    let of_node = all.filter(|one| one["node"] == servers[0].name());
    let fix = |one: &Value| one["fix"].as_str().unwrap().to_owned();
    whats.into_iter().zip(of_node.map(fix)).collect()
}

fn set(server: &RedisServer, words: &[&str]) {
    server.command(words).unwrap();
}

#[test]
fn reservation_without_expiry_is_named_with_the_fix() {
    let servers = prefixed(1, "p:");
    set(&servers[0], &["SET", "p:job 1", RESERVATION]);
    let doctor = ask(&servers, ["--prefix", "p:", "doctor", "--json"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let (what, fix) = &found(&servers, &doctor)[0];
    assert_eq!(what, "warning: its key p:job 1 is a reservation without an expiry");
    assert!(fix.ends_with("run `redlock release --force 'job 1'`"), "{fix}");
    let status = ask(&servers, ["--prefix", "p:", "status", "job 1"]);
    assert!(status.err.contains("this reservation never expires"), "{status:?}");
    assert!(status.err.contains("redlock release --force 'job 1'"), "{status:?}");
    ask(&servers, ["--prefix", "p:", "release", "--force", "job 1", "--yes"]).success();
    ask(&servers, ["--prefix", "p:", "doctor"]).success();
}

#[test]
fn key_of_another_type_in_the_place_of_a_lock_is_named() {
    let servers = prefixed(1, "p:");
    set(&servers[0], &["HSET", "p:job", "a", "b"]);
    let doctor = ask(&servers, ["--prefix", "p:", "doctor", "--json"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let one = (
        "warning: its key p:job is not a lock, because it has another type".to_owned(),
        "delete the key p:job".to_owned(),
    );
    assert_eq!(found(&servers, &doctor), [one]);
    let status = ask(&servers, ["--prefix", "p:", "status", "job"]);
    assert!(
        status.err.contains("this key is not a lock, so this master grants no lock"),
        "{status:?}"
    );
}

/// Other programs may use a server without a prefix as well.
#[test]
fn without_a_prefix_keys_of_other_programs_are_only_information() {
    let servers = RedisServers::start(1).unwrap();
    set(&servers[0], &["HSET", "user:1", "a", "b"]);
    set(&servers[0], &["SET", "setting", "of another program"]);
    let doctor = ask(&servers, ["doctor", "--json"]);
    doctor.success();
    let (what, _) = &found(&servers, &doctor)[0];
    assert_eq!(what, "info: its key user:1 is not a lock, because it has another type");
    set(&servers[0], &["SET", "job", RESERVATION]);
    assert_eq!(ask(&servers, ["doctor"]).code, 1);
}

#[test]
fn thousands_of_bad_keys_are_a_few_lines() {
    let servers = prefixed(1, "p:");
    let script = "for i = 1, 6000 do redis.call('SET', 'p:redlock-quorum:1:queue:' .. i, 'x') \
                  redis.call('SET', 'p:redlock-quorum:1:done:' .. i, 'x') \
                  redis.call('SET', 'p:lock' .. i, 'x') end";
    set(&servers[0], &["EVAL", script, "0"]);
    let doctor = ask(&servers, ["--prefix", "p:", "doctor"]);
    assert_eq!(doctor.code, 1);
    assert!(doctor.out.lines().count() < 40, "{} lines", doctor.out.lines().count());
    assert_eq!(doctor.out.matches("and 5997 others").count(), 3, "{}", doctor.out);
    let json = ask(&servers, ["--prefix", "p:", "doctor", "--json"]).json();
    assert_eq!(json["nodes"][0]["stuck_locks"].as_array().unwrap().len(), 6_000);
}

#[test]
fn record_that_expires_is_found() {
    let servers = RedisServers::start(1).unwrap();
    set(&servers[0], &["EXPIRE", "redlock-quorum:1", "1000"]);
    let doctor = ask(&servers, ["doctor", "--json"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let (what, fix) = &found(&servers, &doctor)[0];
    assert!(what.starts_with("error: its key redlock-quorum:1 expires in "), "{what}");
    assert!(fix.ends_with("run: PERSIST redlock-quorum:1"), "{fix}");
}

#[test]
fn key_of_a_mark_without_a_name_is_named() {
    let servers = RedisServers::start(1).unwrap();
    set(&servers[0], &["SET", "redlock-quorum:1:done:", "x"]);
    let doctor = ask(&servers, ["doctor"]);
    assert!(
        doctor.out.contains("the value of redlock-quorum:1:done: was not written"),
        "{doctor:?}"
    );
}

#[test]
fn connected_replica_is_information_with_a_quarantine() {
    let servers = RedisServers::start(2).unwrap();
    set(&servers[1], &["REPLICAOF", "127.0.0.1", &servers[0].port().to_string()]);
    let found = crate::support::poll("the replica is connected", || {
        let doctor = ask(&servers, ["doctor", "--json"]);
        let found = found(&servers, &doctor);
        found.iter().any(|(what, _)| what.contains("replica")).then_some(found)
    });
    let what = "info: has 1 connected replica";
    assert!(found.iter().any(|(found, _)| found == what), "{found:?}");
}

/// A right without which no lock is acquired is more than a warning.
#[test]
fn missing_right_of_locks_is_an_error() {
    let servers = RedisServers::start(1).unwrap();
    let rights = ["ACL", "SETUSER", "few", "on", ">x", "~*", "&*", "+@all"];
    for right in ["-set", "-get", "-del", "-eval"] {
        set(&servers[0], &[&rights[..], &[right]].concat());
        let url = format!("redis://few:x@{}", servers[0].name());
        let doctor = ask(&servers, ["--node", &url, "doctor", "--json"]);
        let lacks = format!("error: its user lacks +{}", &right[1..]);
        let found = found(&servers, &doctor);
        assert!(found.iter().any(|(what, _)| *what == lacks), "{right}: {found:?}");
    }
}
