//! Messages about masters in quarantine, or before it.

use std::thread;
use std::time::Duration;

use redlock_testkit::lab::text;
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

use crate::support::{ask, poll};

/// Its record looks the same as that of a restarted master.
#[test]
fn master_with_lost_ballots_is_not_only_called_restarted() {
    let servers = RedisServers::start(3).unwrap();
    let sets: Vec<String> = text(&servers[1], &["KEYS", "redlock-quorum:1:ballots:*"]);
    servers[1].command(&["DEL", &sets[0]]).unwrap();
    let words = poll("its quarantine has begun", || {
        ask(&servers, ["run", "other", "--", "true"]).success();
        let status = ask(&servers, ["status", "k", "--json"]).json();
        let cause = status["nodes"][1]["cause"].as_str().map(String::from);
        cause.filter(|cause| cause.contains("in quarantine"))
    });
    let said = "not admitted: restarted, or lost its fencing data, in quarantine; votes again in ";
    assert!(words.starts_with(said), "{words}");
}

/// Servers of which one takes seconds to read its data from disk, once it has some.
pub(crate) fn slow_to_load() -> RedisServers {
    let options = ServerOptions::new().max_ttl(Duration::from_secs(10));
    let options = options.arguments(["--loading-process-events-interval-bytes", "1024"]);
    let servers = RedisServers::with(3, &options.arguments(["--key-load-delay", "50000"])).unwrap();
    let fill = "for i = 1, 100 do redis.call('SET', i, string.rep(i, 2000)) end";
    servers[1].command(&["CONFIG", "SET", "rdbcompression", "no"]).unwrap();
    servers[1].command(&["EVAL", fill, "0"]).unwrap();
    servers[1].command(&["SAVE"]).unwrap();
    servers
}

pub(crate) fn is_loading(server: &RedisServer) -> bool {
    let said = server.command(&["GET", "k"]).map_err(|error| format!("{error:#}"));
    said.is_err_and(|error| error.contains("loading the dataset"))
}

/// It may have a record, so no other quarantine begins before it is over or waited for long enough.
#[test]
fn loading_master_lengthens_the_recommended_wait() {
    let servers = slow_to_load();
    servers[2].restart_empty().unwrap();
    let said = thread::scope(|scope| {
        let loads = scope.spawn(|| servers[1].restart());
        poll("it loads its data", || is_loading(&servers[1]).then_some(()));
        // While it loads it answers now and then.
        let said = ask(&servers, ["--node-timeout", "1s", "acquire", "k", "--ttl", "5s"]);
        assert!(is_loading(&servers[1]), "the request came too late");
        loads.join().unwrap().unwrap();
        said
    });
    assert_eq!(said.code, 69, "{said:?}");
    assert!(said.cause().contains("LOADING") || said.cause().contains("is loading"), "{said:?}");
    // Twice 11 s, and to connect and to end it.
    let (_, wait) = said.cause().rsplit_once("--wait ").expect("a hint");
    let wait = wait.strip_suffix('s').expect("for how long");
    let wait: u32 = wait.parse().unwrap();
    assert!((26..36).contains(&wait), "{said:?}");
}
