//! A key between two holders: it is reserved for a notified waiter, and no client holds it.

use std::time::{Duration, Instant};

use redlock_testkit::RedisServers;
use redlock_testkit::lab::pttl;
use serde_json::json;

use crate::support::{answer_of, ask, copies, redlock};

const OF_A_WAITER: &str = "redlock-quorum:next:00000000000000ff";

/// Starts three masters with a reserved key: for a waiter on one of them, and for no particular
/// waiter on the others, as a release leaves it.
fn reserved() -> RedisServers {
    holding([OF_A_WAITER, "redlock-quorum:next:", "redlock-quorum:next:"])
}

/// Three masters that have these values.
fn holding(values: [&str; 3]) -> RedisServers {
    let servers = RedisServers::start(3).unwrap();
    for (server, value) in servers.iter().zip(values) {
        server.command(&["SET", "k", value, "PX", "60000"]).unwrap();
    }
    servers
}

/// Trap 24. Any of the masters may be the meeting point, and a reservation for no particular waiter
/// serves none there. A client that does not know whether its key is there removes it.
#[test]
fn a_try_on_a_reserved_key_is_refused_and_leaves_it() {
    let servers = holding([OF_A_WAITER; 3]);
    for words in [["acquire", "k", "--wait=0"], ["acquire", "k", "--no-queue"]] {
        let answer = ask(&servers, words);
        assert_eq!((answer.code, answer.out.as_str()), (75, ""), "{answer:?}");
        assert!(answer.cause().contains("reserved for the next waiter"), "{answer:?}");
        assert_eq!(copies(&servers, "k"), 3);
    }
}

/// Trap 24: the key is not free, and no client holds it.
#[test]
fn status_shows_a_reserved_key_as_reserved() {
    let servers = reserved();
    let answer = ask(&servers, ["status", "k"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.out.contains("k is reserved for the next waiter"), "{answer:?}");
    assert!(!answer.out.contains("redlock-quorum:next:"), "{answer:?}");
    let answer = ask(&servers, ["status", "k", "--json"]);
    let object = answer.json();
    assert_eq!(
        (answer.code, &object["state"], &object["token"]),
        (1, &json!("reserved"), &json!(null))
    );
    for node in object["nodes"].as_array().unwrap() {
        assert_eq!((&node["state"], &node["token"]), (&json!("reserved"), &json!(null)), "{node}");
    }
    let all = ask(&servers, ["status", "--json"]);
    assert_eq!((all.code, &all.json()["locks"]), (0, &json!([])), "it is not a lock");
}

/// Trap 24: a notified waiter that died is no reason to wait.
#[test]
fn a_forced_release_deletes_a_reservation() {
    let servers = reserved();
    let answer = ask(&servers, ["release", "--force", "k", "--yes", "--json"]);
    answer.success();
    let nodes: Vec<_> = servers.iter().map(|server| server.name()).collect();
    assert_eq!(answer.json(), json!({"key": "k", "deleted": nodes}));
    assert!(answer.err.contains("reserved for the next waiter"), "{answer:?}");
    assert_eq!(copies(&servers, "k"), 0);
    ask(&servers, ["acquire", "k"]).success();
}

/// Trap 24: neither is its value a token, whatever ticket it names.
#[test]
fn reservation_value_is_not_accepted_as_a_token() {
    let servers = reserved();
    let left = |place: usize| pttl(&servers[place], "k");
    for value in ["redlock-quorum:next:", OF_A_WAITER] {
        for words in [["extend", "k", value], ["release", "k", value]] {
            let answer = ask(&servers, words);
            assert_eq!((answer.code, answer.out.as_str()), (64, ""), "{words:?}: {answer:?}");
        }
    }
    assert_eq!(copies(&servers, "k"), 3);
    assert!((0..3).all(|place| left(place) <= 60_000), "its time was extended");
}

/// Trap 24: it is over by itself.
#[test]
fn waiter_gets_a_key_after_an_unused_reservation() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["SET", "k", OF_A_WAITER, "PX", "300"]).unwrap();
    }
    let begun = Instant::now();
    let answer = answer_of(&mut redlock(&servers, ["acquire", "k", "--wait", "10s"]));
    answer.success();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}
