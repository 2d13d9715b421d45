//! `redlock run` with several keys.

use std::{fs, thread};

use redlock_testkit::RedisServers;

use crate::support::{Running, Scratch, ask, copies, poll, redlock, value};

/// Prints the command's variables about its locks.
const TELL: &str =
    r#"printf '%s\n' "$REDLOCK_KEY" "$REDLOCK_TOKEN" "$REDLOCK_FENCING_TOKEN" "$REDLOCK_HELD""#;

#[test]
fn command_runs_under_all_locks_with_one_line_each() {
    let servers = RedisServers::start(3).unwrap();
    let answer = ask(&servers, ["run", "b", "a 1", "c", "-c", TELL]);
    let told: Vec<&str> = answer.success().lines().collect();
    assert_eq!(told[..3], ["b", "a 1", "c"], "in the order of the arguments");
    let (tokens, fences) = (&told[3..6], &told[6..9]);
    assert!(fences.iter().all(|fence| fence.parse::<u64>().unwrap() > 0), "{told:?}");
    let held = format!("b={} a%201={} c={}", tokens[0], tokens[1], tokens[2]);
    assert_eq!(told[9..], [held.as_str()]);
    for key in ["a 1", "b", "c"] {
        assert_eq!(copies(&servers, key), 0, "{key} is released");
    }
    let plain = ask(&servers, ["run", "--plain", "--prefix", "p:", "-n", "a", "--", "true"]);
    assert_eq!(plain.code, 69, "masters of another prefix are new: {plain:?}");
}

#[test]
fn set_takes_all_or_none_and_names_the_held_key() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["SET", "b", "stranger", "PX", "60000"]).unwrap();
    }
    let refused = ask(&servers, ["run", "-n", "a", "b", "c", "--", "true"]);
    assert_eq!(refused.code, 75, "{refused:?}");
    assert!(refused.cause().starts_with("redlock: b is held by another client"), "{refused:?}");
    assert_eq!((copies(&servers, "a"), copies(&servers, "c")), (0, 0));
}

#[test]
fn invalid_set_of_keys_is_wrong_usage() {
    let servers = RedisServers::start(3).unwrap();
    for (words, told) in [
        (["run", "a", "b", "a", "--", "true"], "a is listed twice"),
        (["run", "--once-in=1h", "a", "b", "--", "true"], "accept a single KEY"),
        (["run", "--fire=7", "a", "b", "--", "true"], "accept a single KEY"),
    ] {
        let refused = ask(&servers, words);
        assert_eq!(refused.code, 64, "{words:?}: {refused:?}");
        assert!(refused.err.contains(told), "{words:?}: {refused:?}");
    }
    let mut many = redlock(&servers, ["run"]);
    many.args((0..65).map(|key| key.to_string())).args(["--", "true"]);
    let refused = Running::start(many).answer();
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.err.contains("pass 1 to 64"), "{refused:?}");
}

#[test]
fn lost_lock_of_a_set_ends_the_command_and_is_named() {
    let servers = RedisServers::start(3).unwrap();
    let running =
        Running::start(redlock(&servers, ["run", "--ttl", "3s", "a", "b", "--", "sleep", "60"]));
    poll("both are held", || {
        (copies(&servers, "a") >= 2 && copies(&servers, "b") >= 2).then_some(())
    });
    for server in servers.iter() {
        server.command(&["SET", "b", "stranger", "PX", "60000"]).unwrap();
    }
    let answer = running.answer();
    assert_eq!(answer.code, 79, "{answer:?}");
    assert!(answer.cause().starts_with("redlock: b: lock lost: "), "{answer:?}");
    assert_eq!(copies(&servers, "a"), 0, "the other is released");
    assert_eq!(value(&servers[0], "b").as_deref(), Some("stranger"));
}

#[test]
fn keep_lets_all_locks_of_a_set_expire() {
    let servers = RedisServers::start(3).unwrap();
    ask(&servers, ["run", "--keep", "a", "b", "--", "true"]).success();
    assert!(copies(&servers, "a") >= 2 && copies(&servers, "b") >= 2);
}

/// Each key has a directory while it is held. An existing directory belongs to another holder.
const HOLD: &str = r#"
for key in $REDLOCK_KEY; do mkdir "$DIR/$key" || touch "$DIR/overlap"; done
sleep 0.02
for key in $REDLOCK_KEY; do rmdir "$DIR/$key"; done
"#;

#[test]
fn processes_with_overlapping_sets_exclude_each_other() {
    const PROCESSES: usize = 8;
    const ROUNDS: usize = 5;
    let servers = RedisServers::start(3).unwrap();
    let folder = Scratch::new("sets");
    let (servers, folder) = (&servers, &folder.file(""));
    thread::scope(|scope| {
        for process in 0..PROCESSES {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let keys = some_keys(process * ROUNDS + round);
                    let mut run = redlock(servers, ["run", "--wait", "2m"]);
                    run.env("DIR", folder).args(keys).args(["-c", HOLD]);
                    Running::start(run).answer().success();
                }
            });
        }
    });
    assert!(!fs::exists(folder.join("overlap")).unwrap(), "two held one key");
}

/// One to four of six keys, in another order each time.
fn some_keys(number: usize) -> Vec<String> {
    let step = if number.is_multiple_of(2) { 1 } else { 5 };
    (0..=number % 4).map(|place| ((number / 3 + place * step) % 6).to_string()).collect()
}
