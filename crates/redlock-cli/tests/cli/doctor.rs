//! The findings of `doctor`, and the states that are not findings.

use std::thread;

use redlock_testkit::lab::text;
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};
use serde_json::Value;

use crate::admission::brand_new;
use crate::support::{Answer, answer_of, ask, bare, poll};

/// Returns the findings about one master, or about all, each with its description.
pub(crate) fn findings(object: &Value, node: Option<String>) -> Vec<String> {
    let node = node.map_or(Value::Null, Value::from);
    let found = object["findings"].as_array().unwrap().iter();
    let found = found.filter(|finding| finding["node"] == node);
    found
        .map(|finding| {
            assert_eq!(finding.as_object().unwrap().len(), 5, "{finding}");
            assert!(!finding["impact"].as_str().unwrap().is_empty(), "{finding}");
            assert!(!finding["fix"].as_str().unwrap().is_empty(), "{finding}");
            let severity = finding["severity"].as_str().unwrap();
            format!("{severity}: {}", finding["what"].as_str().unwrap())
        })
        .collect()
}

#[test]
fn healthy_master_has_no_findings() {
    let servers = RedisServers::start(1).unwrap();
    let answer = ask(&servers, ["doctor", "--json"]);
    answer.success();
    let object = answer.json();
    assert_eq!(object["findings"], serde_json::json!([]));
    let node = &object["nodes"][0];
    assert_eq!((&node["node"], &node["state"]), (&servers[0].name().into(), &"admitted".into()));
    assert_eq!((&node["max_ttl_ms"], &node["ballots"]), (&60_000.into(), &1024.into()));
    assert_eq!((&node["tracks"], &node["role"]), (&true.into(), &"a master".into()));
    assert_eq!(node["admitted_as"], node["run_id"]);
    let people = ask(&servers, ["doctor"]);
    assert!(
        people.success().contains("no problem was found") && !people.out.contains("0ns"),
        "{people:?}"
    );
}

#[test]
fn masters_on_one_host_and_without_a_quorum_are_found() {
    let servers = brand_new(3);
    let answer = ask(&servers, ["doctor", "--json"]);
    assert_eq!(answer.code, 1);
    let object = answer.json();
    let all = findings(&object, None);
    assert_eq!(all[0], "error: no quorum: 0 of 3 masters vote, 2 needed");
    assert_eq!(all[1], "info: 3 masters are on 127.0.0.1");
    let one = findings(&object, Some(servers[0].name()));
    assert!(
        one[0].starts_with("error: not admitted: new, or lost its data, its quarantine"),
        "{one:?}"
    );
    let dbsize: usize = text(&servers[0], &["DBSIZE"]);
    assert_eq!(dbsize, 0, "nothing is written");
    let people = ask(&servers, ["doctor"]);
    let cause = people.cause();
    assert!(
        cause.starts_with("redlock: 2 findings: not admitted: new, or lost its data"),
        "{people:?}"
    );
    assert!(cause.contains(" at 3 masters, no quorum: 0 of 3 masters vote"), "{people:?}");
    assert!(people.out.contains("if all masters are new, run `redlock init`"), "{people:?}");
}

/// Returns the positions of these words in the output, where each occurs once.
pub(crate) fn places(out: &str, words: &[&str]) -> Vec<usize> {
    let place = |words: &&str| {
        assert_eq!(out.matches(*words).count(), 1, "{words}: {out}");
        out.find(*words).unwrap()
    };
    words.iter().map(place).collect()
}

#[test]
fn common_problem_of_masters_is_one_block_after_its_cause() {
    let servers = RedisServers::start(5).unwrap();
    let names = servers.iter().map(RedisServer::name).collect::<Vec<_>>().join(", ");
    let urls = servers.urls().join(",").replace("redis://", "redis://nobody:wrong@");
    let people = answer_of(bare(["doctor"]).env("REDLOCK_NODES", &urls));
    let at = format!("\n  at:     {names}\n");
    let order = ["error: error reply: WRONGPASS", &at, "error: no quorum", "info: 5 masters"];
    assert!(places(&people.out, &order).is_sorted(), "{people:?}");
    assert!(people.cause().starts_with("redlock: 2 findings: error reply: WRONG"), "{people:?}");
    assert!(people.cause().contains(" at 5 masters, no quorum"), "{people:?}");
    let json = answer_of(bare(["doctor", "--json"]).env("REDLOCK_NODES", &urls)).json();
    let of_nodes = json["findings"].as_array().unwrap().iter();
    assert_eq!(of_nodes.filter(|found| found["node"].is_string()).count(), 5, "{json}");
}

#[test]
fn the_help_explains_each_state_of_a_master() {
    let help = answer_of(&mut bare(["doctor", "--help"])).out;
    for state in ["admitted", "quarantine", "none", "refused", "unreachable"] {
        let explains = |line: &str| line.starts_with(&format!("  {state} "));
        assert!(help.lines().any(explains), "{state}: {help}");
    }
}

#[test]
fn risks_are_reported_for_their_master() {
    let servers = RedisServers::start(3).unwrap();
    for (name, value) in [("maxmemory", "1gb"), ("maxmemory-policy", "volatile-lru")] {
        servers[0].command(&["CONFIG", "SET", name, value]).unwrap();
    }
    servers[2].kill();
    let answer = ask(&servers, ["doctor", "--json"]);
    assert_eq!(answer.code, 1);
    let of = |place: usize| findings(&answer.json(), Some(servers[place].name()));
    assert_eq!(of(0), ["warning: evicts keys when its memory is full: volatile-lru"]);
    assert_eq!(of(1), Vec::<String>::new());
    assert_eq!(of(2), ["error: connection refused"]);
}

/// Without a memory limit nothing is evicted, so it is not yet a problem.
#[test]
fn eviction_policy_without_a_limit_is_only_information() {
    let servers = RedisServers::start(1).unwrap();
    servers[0].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    let answer = ask(&servers, ["doctor", "--json"]);
    answer.success();
    let found = findings(&answer.json(), Some(servers[0].name()));
    let what = "info: its eviction policy is allkeys-lru, inactive while maxmemory is 0";
    assert_eq!(found, [what]);
}

#[test]
fn even_number_of_masters_is_reported_with_its_tolerance() {
    for (masters, code, what) in [
        (2, 1, "warning: 2 masters tolerate no failure"),
        (4, 0, "info: 4 masters: 1 can fail, the same as with 3"),
    ] {
        let servers = RedisServers::start(masters).unwrap();
        let answer = ask(&servers, ["doctor", "--json"]);
        assert_eq!(answer.code, code, "{answer:?}");
        let found = findings(&answer.json(), None);
        assert!(found.contains(&what.to_owned()), "{found:?}");
    }
}

#[test]
fn without_quarantine_missing_persistence_is_a_finding() {
    let servers = brand_new(1);
    let found = || {
        let answer = ask(&servers, ["--quarantine", "off", "doctor", "--json"]);
        findings(&answer.json(), Some(servers[0].name()))
    };
    assert_eq!(found(), ["warning: may lose acknowledged writes"]);
    servers[0].command(&["CONFIG", "SET", "appendonly", "yes"]).unwrap();
    servers[0].command(&["CONFIG", "SET", "appendfsync", "always"]).unwrap();
    assert_eq!(found(), Vec::<String>::new());
}

#[test]
fn use_without_quarantine_differs_from_new_masters() {
    let servers = brand_new(3);
    // One run is done when two of the masters are connected.
    poll("all masters have ballots", || {
        ask(&servers, ["--quarantine", "off", "run", "k", "--", "true"]).success();
        let has_ballots = |server| text::<i64>(server, &["EXISTS", "redlock-quorum:1:ballots"]);
        (servers.iter().map(has_ballots).sum::<i64>() == 3).then_some(())
    });
    let answer = ask(&servers, ["doctor", "--json"]);
    let object = answer.json();
    let one = findings(&object, Some(servers[0].name()));
    let what = "error: not admitted: other clients use this prefix without a quarantine";
    assert!(one[0].starts_with(what), "{one:?}");
    let people = ask(&servers, ["doctor"]);
    assert!(!people.out.contains("new, or lost its data"), "{people:?}");
    for cure in ["REDLOCK_QUARANTINE=off for this client", "redlock init --again"] {
        assert!(people.out.contains(cure), "{people:?}");
    }
    for words in [["status", "k"], ["acquire", "k"]] {
        let answer = ask(&servers, words);
        assert_eq!(answer.code, 69, "{answer:?}");
        let cause = answer.cause();
        assert!(cause.contains("use --quarantine off here too"), "{cause}");
        assert!(
            !cause.contains("new, or lost its data") && !cause.contains("if these masters are new"),
            "{cause}"
        );
    }
    let refused = ask(&servers, ["init", "--yes"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.cause().contains("redlock init --again`"), "{refused:?}");
    assert!(!refused.cause().contains("wait for the quarantine to end"), "{refused:?}");
    assert_eq!(ask(&servers, ["--quarantine", "off", "status", "k"]).code, 1, "it is free");
    ask(&servers, ["init", "--again"]).success();
    assert_eq!(ask(&servers, ["status", "k"]).code, 1);
}

#[test]
fn different_limits_are_found() {
    let long = ServerOptions::new().max_ttl(std::time::Duration::from_secs(90));
    let servers = [RedisServers::start(1).unwrap(), RedisServers::with(1, &long).unwrap()];
    let urls: Vec<_> = servers.iter().flat_map(|servers| servers.urls()).collect();
    let mut command = bare(["doctor", "--json"]);
    let answer = answer_of(command.env("REDLOCK_NODES", urls.join(",")));
    let all = findings(&answer.json(), None);
    assert!(
        all.contains(&"warning: max_ttl is 1m on one master and 1m30s on another".into()),
        "{all:?}"
    );
}

/// Scripts find it before they write anything, so no quarantine begins or ends there.
#[test]
fn keys_of_another_type_are_named_with_the_fix() {
    let servers = RedisServers::start(4).unwrap();
    let set: Vec<String> = text(&servers[0], &["KEYS", "redlock-quorum:1:ballots:*"]);
    let former = "f".repeat(40);
    let record = "redlock-quorum:1";
    let keys = [
        set[0].clone(),
        record.into(),
        format!("{record}:ballots"),
        format!("{record}:ballots:{}", &former[..16]),
    ];
    for (server, key) in servers.iter().zip(&keys) {
        server.command(&["SET", key, "a string"]).unwrap();
    }
    // Its quarantine began in a former life: who begins another reads the ballots of that one.
    let fields = ["q:id", &former, "q:until", "0", "q:ballot", "0"];
    servers[3].command(&[&["HSET", record], &fields[..]].concat()).unwrap();
    servers[3].command(&["HDEL", record, "run"]).unwrap();
    let answer = ask(&servers, ["doctor", "--json"]);
    let object = answer.json();
    for (server, key) in servers.iter().zip(&keys) {
        let of_node = object["findings"].as_array().unwrap().iter();
        let mut of_node = of_node.filter(|finding| finding["node"] == server.name());
        // The third belongs to clients without a quarantine.
        let is_off = key.ends_with(":ballots");
        let then = "; that master then does not vote for 1m6s (1.1 × max_ttl)";
        let then = if is_off { "" } else { then };
        let cure = format!("delete the key {key}{then}");
        let found = of_node.find(|finding| finding["fix"] == cure);
        let found = found.unwrap_or_else(|| panic!("{key}: {answer:?}"));
        let what = format!("its key {key} has the wrong type, so redlock does not write to it");
        let severity = if is_off { "warning" } else { "error" };
        assert_eq!((&found["what"], &found["severity"]), (&what.into(), &severity.into()));
    }
    let words = ask(&servers, ["doctor"]).out;
    assert!(!words.contains("fix:    wait"), "{words}");
    assert!(words.contains("fix this master's other findings first"), "{words}");
}

#[test]
fn wrong_type_queue_key_is_found() {
    let servers = RedisServers::start(1).unwrap();
    let key = "redlock-quorum:1:queue:orders:42";
    servers[0].command(&["ZADD", "redlock-quorum:1:queue:fine", "1", "ticket"]).unwrap();
    let of_queues = |answer: Answer| {
        let found = answer.json()["findings"].as_array().unwrap().clone();
        let is_of_queue = |one: &Value| one["what"].as_str().unwrap().contains("queue:");
        found.into_iter().filter(is_of_queue).collect::<Vec<_>>()
    };
    assert_eq!(of_queues(ask(&servers, ["doctor", "--json"])), [] as [Value; 0]);
    servers[0].command(&["SET", key, "another type"]).unwrap();
    let answer = ask(&servers, ["doctor", "--json"]);
    assert_eq!(answer.code, 1);
    let found = of_queues(answer);
    let what = format!("its key {key} has the wrong type, so no client can queue there");
    assert_eq!(
        (found.len(), &found[0]["what"], &found[0]["severity"]),
        (1, &what.into(), &"warning".into())
    );
    assert_eq!(found[0]["fix"], format!("delete the key {key}"));
    let answer = ask(&servers, ["--no-queue", "doctor", "--json"]);
    assert!(of_queues(answer).is_empty(), "without queues it does no harm");
}

/// No quarantine can start there, so `doctor` does not advise to wait.
#[test]
fn master_refusing_writes_is_found() {
    let servers = brand_new(1);
    servers[0].command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let findings = ask(&servers, ["doctor", "--json"]).json()["findings"].clone();
    let said: Vec<_> = findings.as_array().unwrap().iter().map(|one| one["what"].clone()).collect();
    assert!(said.iter().any(|what| what.as_str().unwrap().starts_with("refuses writes: OOM")));
    let cure = findings[1]["fix"].as_str().unwrap();
    assert!(cure.starts_with("fix this master's other findings first"), "{findings}");
}

#[test]
fn missing_replicas_are_not_a_matter_of_memory() {
    let servers = RedisServers::start(1).unwrap();
    servers[0].command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).unwrap();
    let doctor = ask(&servers, ["doctor"]);
    assert!(doctor.out.contains("error: refuses writes: NOREPLICAS"), "{doctor:?}");
    assert!(doctor.out.contains("fix:    set min-replicas-to-write to 0\n"), "{doctor:?}");
}

#[test]
fn endless_script_differs_from_a_missing_right() {
    let servers = RedisServers::start(1).unwrap();
    servers[0].command(&["CONFIG", "SET", "lua-time-limit", "1"]).unwrap();
    let found = thread::scope(|scope| {
        let script = scope.spawn(|| servers[0].command(&["EVAL", "while true do end", "0"]));
        let found = poll("the script is in the way", || {
            let found = ask(&servers, ["doctor", "--json"]).json()["findings"][1].clone();
            let is_busy = |what: &str| what.starts_with("error reply: BUSY");
            found["what"].as_str().is_some_and(is_busy).then_some(found)
        });
        servers[0].command(&["SCRIPT", "KILL"]).unwrap();
        assert!(script.join().unwrap().is_err(), "it was ended");
        found
    });
    let cure = found["fix"].as_str().unwrap();
    assert!(cure.contains("SCRIPT KILL") && !cure.contains("password"), "{cure}");
}

#[test]
fn foreign_ballots_are_found() {
    let servers = RedisServers::start(3).unwrap();
    let sets: Vec<String> = text(&servers[1], &["KEYS", "redlock-quorum:1:ballots:*"]);
    for (member, score) in [("7", "9007199254740992"), ("9", "3000000000000000"), ("8", "1.5")] {
        servers[1].command(&["ZADD", &sets[0], score, member]).unwrap();
    }
    let answer = ask(&servers, ["doctor", "--json"]);
    assert_eq!(answer.code, 1);
    let of = |place: usize| findings(&answer.json(), Some(servers[place].name()));
    let found = format!(
        "error: 2 of its ballots in {} were not written by redlock, for example 7: 9007199254740992",
        sets[0]
    );
    assert_eq!((of(0), of(1)), (Vec::new(), vec![found]));
    assert_eq!(answer.json()["nodes"][1]["foreign_scores"][1], "8: 1.5");
    let plain = ask(&servers, ["doctor", "--plain", "--json"]).json();
    assert_eq!(findings(&plain, Some(servers[1].name())), Vec::<String>::new());
}

/// So it is on the machine of a developer, and in CI.
#[test]
fn masters_on_one_host_are_only_information() {
    let servers = RedisServers::start(3).unwrap();
    let answer = ask(&servers, ["doctor", "--json"]);
    answer.success();
    assert_eq!(findings(&answer.json(), None), ["info: 3 masters are on 127.0.0.1"]);
    let people = ask(&servers, ["doctor"]);
    let said = people.success();
    assert!(said.contains("info: 3 masters") && said.contains("no problem was found"), "{said}");
}
