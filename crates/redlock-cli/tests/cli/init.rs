//! The output of `init` about `max_ttl`, and parallel calls of `init`.

use std::thread;
use std::time::Duration;

use redlock_testkit::lab::text;
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

use crate::admission::brand_new;
use crate::quarantine::{is_loading, slow_to_load};
use crate::support::{answer_of, ask, poll, redlock};
use crate::terminal::Terminal;

/// The `max_ttl` of the masters that vote is raised apart from any admission.
#[test]
fn refused_init_prints_the_max_ttl_of_each_master() {
    let servers = RedisServers::start(3).unwrap();
    servers[2].restart_empty().unwrap();
    let refused = ask(&servers, ["init", "--yes", "--max-ttl", "2m"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    let [a, b, c] = [0, 1, 2].map(|place: usize| servers[place].name());
    let said = format!("; max_ttl is now: {a} 2m (was 1m), {b} 2m (was 1m), {c} none");
    assert!(refused.cause().contains(&said), "{refused:?}");
    let refused = ask(&servers, ["init", "--yes"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(!refused.cause().contains("max_ttl"), "no floor was requested: {refused:?}");
}

#[test]
fn init_lowering_max_ttl_prints_how_long_not_to_restart() {
    let servers = RedisServers::start(3).unwrap();
    let lowered = ask(&servers, ["init", "--again", "--max-ttl", "10s", "--json"]);
    lowered.success();
    assert!(lowered.err.starts_with("note: max_ttl was 1m. Connected clients"), "{lowered:?}");
    assert!(lowered.err.contains("do not restart any master for 2m6s"), "{lowered:?}");
    let same = ask(&servers, ["init", "--again", "--max-ttl", "10s"]);
    assert!(same.success().contains("max_ttl 10s") && same.err.is_empty(), "{same:?}");
    let raised = ask(&servers, ["init", "--again", "--max-ttl", "20s"]);
    assert!(raised.success().contains("max_ttl 20s") && raised.err.is_empty(), "{raised:?}");
}

/// Late calls find masters that others are admitting, and none that lost data.
#[test]
fn concurrent_inits_never_recommend_again() {
    let servers = brand_new(3);
    let answers: Vec<_> = thread::scope(|scope| {
        let init = || ask(&servers, ["init", "--yes"]);
        let mut started = Vec::new();
        for _ in 0..60 {
            started.push(scope.spawn(init));
        }
        started.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for answer in answers.iter().filter(|answer| answer.code != 0) {
        assert!(!answer.cause().contains("--again"), "{answer:?}");
    }
    for server in servers.iter() {
        assert_eq!(text::<Vec<String>>(server, &["HKEYS", "redlock-quorum:1"]).len(), 6);
    }
    let set = |server| text::<String>(server, &["HGET", "redlock-quorum:1", "set"]);
    assert!(servers.iter().all(|server| set(server) == set(&servers[0])), "they agree on one set");
}

fn pause(server: &RedisServer) {
    server.pause().unwrap();
}

fn stop(server: &RedisServer) {
    server.stop().unwrap();
}

/// Two masters that restarted empty look new. The record of the third one shows that they are not.
#[test]
fn init_with_an_unreadable_record_names_its_master() {
    for away in [pause, stop] {
        let servers = RedisServers::start(3).unwrap();
        away(&servers[2]);
        servers[..2].iter().for_each(|server| server.restart_empty().unwrap());
        let refused = ask(&servers, ["init", "--yes"]);
        assert_eq!(refused.code, 64, "{refused:?}");
        let named = format!("could not read the admission record of {}, ", servers[2].name());
        assert!(refused.cause().contains(&named), "{refused:?}");
        assert!(refused.cause().contains("--again"), "{refused:?}");
        let keys = |server: &RedisServer| text::<usize>(server, &["DBSIZE"]);
        assert_eq!((keys(&servers[0]), keys(&servers[1])), (0, 0));
        ask(&servers, ["init", "--again"]).success();
    }
}

/// `init` waits for it, as clients do before a quarantine starts.
#[test]
fn init_reads_the_record_of_a_loading_master() {
    let servers = slow_to_load();
    for other in [0, 2] {
        servers[other].restart_empty().unwrap();
    }
    let refused = thread::scope(|scope| {
        let loads = scope.spawn(|| servers[1].restart());
        poll("it loads its data", || is_loading(&servers[1]).then_some(()));
        let refused = ask(&servers, ["--node-timeout", "1s", "init", "--yes"]);
        loads.join().unwrap().unwrap();
        refused
    });
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.cause().contains("this prefix is in use"), "{refused:?}");
    let waits = format!(" until {} has loaded its data\n", servers[1].name());
    assert!(refused.err.starts_with("note: waiting for at most "), "{refused:?}");
    assert!(refused.err.contains(&waits), "{refused:?}");
    for other in [0, 2] {
        assert_eq!(text::<usize>(&servers[other], &["DBSIZE"]), 0);
    }
}

/// This holds for the environment and for options, because the limit is known only after the
/// masters answered.
#[test]
fn ttl_is_limited_by_the_masters_max_ttl() {
    let options = ServerOptions::new().max_ttl(Duration::from_secs(6));
    let servers = RedisServers::with(3, &options).unwrap();
    let acquire = |ttl| {
        let mut command = redlock(&servers, ["acquire", ttl, "--ttl", ttl]);
        answer_of(command.env("REDLOCK_MAX_TTL", "3s"))
    };
    acquire("5s").success();
    let refused = acquire("7s");
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.cause().contains("--ttl 7s exceeds max_ttl (6s)"), "{refused:?}");
}

/// If all masters restart empty, only operators know the floor.
#[test]
fn floor_far_ahead_of_the_clocks_needs_far_floor() {
    let servers = brand_new(3);
    let floor = ["init", "--yes", "--floor", "4000000000000000"];
    let refused = ask(&servers, floor);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.cause().contains("--far-floor"), "{refused:?}");
    assert!(servers.iter().all(|server| text::<usize>(server, &["DBSIZE"]) == 0));
    answer_of(redlock(&servers, floor).arg("--far-floor")).success();
    assert_eq!(ask(&servers, ["init", "--yes", "--far-floor"]).code, 64, "of no floor");
}

/// Otherwise an operator would confirm a statement in vain.
#[test]
fn init_is_refused_before_it_prompts() {
    let servers = RedisServers::start(3).unwrap();
    servers[0].restart_empty().unwrap();
    let refused = [redlock(&servers, ["init"]), redlock(&servers, ["init", "--quarantine", "off"])];
    for (command, why) in refused.iter().zip(["this prefix is in use", "admits no masters"]) {
        let terminal = Terminal::start(command);
        let shown = terminal.shows(why);
        assert!(!shown.contains("[y/N]"), "{shown}");
        assert_eq!(terminal.code(), 64);
    }
}
