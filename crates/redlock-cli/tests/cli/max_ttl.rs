//! The largest TTL: what `init` sets, keeps and prints.

use redlock_testkit::RedisServers;
use redlock_testkit::lab::text;

use crate::admission::brand_new;
use crate::support::{answer_of, ask, redlock};

#[test]
fn init_sets_max_ttl_and_the_default_ttl_shrinks_to_it() {
    let servers = RedisServers::start(3).unwrap();
    let ttl = |words: &[&str]| {
        let mut command = redlock(&servers, ["acquire", "--json"]);
        let answer = answer_of(command.args(words));
        if answer.code == 0 { answer.json()["ttl_ms"].as_u64() } else { None }
    };
    assert_eq!((ttl(&["a"]), ttl(&["b", "--ttl", "2m"])), (Some(30_000), None));
    ask(&servers, ["init", "--again", "--max-ttl", "2m"]).success();
    assert_eq!((ttl(&["b", "--ttl", "2m"]), ttl(&["c", "--ttl", "3m"])), (Some(120_000), None));
    ask(&servers, ["init", "--again", "--max-ttl", "5s"]).success();
    assert_eq!(ttl(&["d"]), Some(5_000));
    let refused = ask(&servers, ["run", "e", "--ttl", "6s", "--", "true"]);
    assert_eq!(refused.code, 64);
    assert!(refused.cause().contains("--ttl 6s exceeds max_ttl (5s)"), "{refused:?}");
    assert!(!refused.cause().contains("max_ttl("), "no method of the library: {refused:?}");
    let run = ask(&servers, ["run", "e", "--", "true"]);
    assert_eq!(run.code, 0, "{run:?}");
}

/// Returns `max_ttl` in the record of each master. Empty if it has no record.
fn max_ttls(servers: &RedisServers) -> Vec<String> {
    let of = |server| text::<Option<String>>(server, &["HGET", "redlock-quorum:1", "max_ttl"]);
    servers.iter().map(|server| of(server).unwrap_or_default()).collect()
}

/// The two that have lost their records may answer first, and make a quorum.
#[test]
fn quarantine_uses_the_only_recorded_max_ttl() {
    for kept in 0..3 {
        let servers = brand_new(3);
        ask(&servers, ["init", "--yes", "--max-ttl", "10m"]).success();
        ask(&servers, ["acquire", "long", "--ttl", "10m"]).success();
        for (_, server) in servers.iter().enumerate().filter(|(place, _)| *place != kept) {
            server.restart_empty().unwrap();
        }
        let answer = ask(&servers, ["acquire", "other"]);
        assert_eq!(answer.code, 69, "{answer:?}");
        assert_eq!(max_ttls(&servers), ["600000"; 3], "{kept}: {answer:?}");
    }
}

#[test]
fn init_without_max_ttl_keeps_a_short_one() {
    let servers = brand_new(3);
    ask(&servers, ["init", "--yes", "--max-ttl", "10s"]).success();
    ask(&servers, ["init", "--yes"]).success();
    assert_eq!(max_ttls(&servers), ["10000"; 3]);
    servers[0].restart_empty().unwrap();
    assert_eq!(ask(&servers, ["init", "--yes"]).code, 64);
    assert_eq!(max_ttls(&servers)[1..], ["10000"; 2]);
    ask(&servers, ["init", "--again"]).success();
    assert_eq!(max_ttls(&servers), ["10000"; 3]);
}

/// Otherwise the user would believe that locks are shorter than they may be.
#[test]
fn init_with_a_smaller_max_ttl_prints_how_to_lower_it() {
    let servers = brand_new(3);
    let init = |words: &[&str]| {
        let answer = answer_of(redlock(&servers, ["init"]).args(words));
        answer.success();
        answer.err
    };
    assert_eq!(init(&["--yes", "--max-ttl", "2m"]), "");
    let said = init(&["--yes", "--max-ttl", "90s"]);
    assert!(said.starts_with("note: max_ttl stays at 2m, the value on the masters: "), "{said}");
    assert!(
        said.contains("run redlock init --again --max-ttl 1m30s while every master answers"),
        "{said}"
    );
    assert_eq!(max_ttls(&servers), ["120000"; 3]);
    servers[2].kill();
    let said = init(&["--again", "--max-ttl", "90s"]);
    assert!(
        said.contains(
            "note: max_ttl stays at 2m, the value on the masters: lowering it requires every master"
        ),
        "{said}"
    );
    servers[2].restart_empty().unwrap();
    let said = init(&["--again", "--max-ttl", "90s"]);
    assert!(said.starts_with("note: max_ttl was 2m. ") && !said.contains("stays"), "{said}");
    assert_eq!(max_ttls(&servers), ["90000"; 3]);
}

#[test]
fn init_prints_the_resulting_max_ttl() {
    let servers = brand_new(3);
    let said = ask(&servers, ["init", "--yes"]);
    assert_eq!(said.success().matches(", max_ttl 1m").count(), 3, "{said:?}");
    let said = ask(&servers, ["--max-ttl", "2m", "init", "--again"]);
    assert_eq!(said.success().matches(", max_ttl 2m").count(), 3, "{said:?}");
}
