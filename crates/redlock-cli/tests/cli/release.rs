//! Exit codes of `release KEY TOKEN`.

use redlock_testkit::RedisServers;
use serde_json::json;

use crate::support::ask;

/// A quorum may still hold the lock, so it is not released.
#[test]
fn unconfirmed_release_is_not_a_success() {
    for reached in [1, 2] {
        for kills in [false, true] {
            let servers = RedisServers::start(5).unwrap();
            let acquired = ask(&servers, ["acquire", "k"]);
            let token = acquired.success().split(' ').next().unwrap();
            for server in servers.iter().skip(reached) {
                if kills {
                    server.kill();
                } else {
                    server.pause().unwrap();
                }
            }
            let answer = ask(&servers, ["release", "k", token, "--json"]);
            assert_eq!((answer.code, answer.json()["released"].clone()), (69, json!(false)));
            assert!(answer.cause().contains("not confirmed by a quorum"), "{answer:?}");
            assert!(answer.err.contains("may keep the key of k"), "{answer:?}");
        }
    }
}

#[test]
fn release_confirmed_by_a_quorum_is_a_success() {
    let servers = RedisServers::start(5).unwrap();
    let acquired = ask(&servers, ["acquire", "k"]);
    let token = acquired.success().split(' ').next().unwrap();
    servers.iter().take(2).for_each(|server| server.kill());
    let answer = ask(&servers, ["release", "k", token, "--json"]);
    assert_eq!((answer.code, answer.json()["released"].clone()), (0, json!(true)), "{answer:?}");
}
