//! What `doctor` finds, and what it leaves alone.

use redlock_testkit::lab::text;
use redlock_testkit::{RedisServers, ServerOptions};
use serde_json::Value;

use crate::admission::brand_new;
use crate::support::{answer_of, ask, bare, redlock};

/// The findings about one master, or about all; each with words of what it is.
fn findings(object: &Value, node: Option<String>) -> Vec<String> {
    let node = node.map_or(Value::Null, Value::from);
    let found = object["findings"].as_array().unwrap().iter();
    let found = found.filter(|finding| finding["node"] == node);
    found
        .map(|finding| {
            assert_eq!(finding.as_object().unwrap().len(), 5, "{finding}");
            assert!(!finding["why"].as_str().unwrap().is_empty(), "{finding}");
            assert!(!finding["cure"].as_str().unwrap().is_empty(), "{finding}");
            let severity = finding["severity"].as_str().unwrap();
            format!("{severity}: {}", finding["what"].as_str().unwrap())
        })
        .collect()
}

#[test]
fn one_master_that_is_well_has_no_findings() {
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
        people.success().contains("nothing is wrong") && !people.out.contains("0ns"),
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
    assert_eq!(all[0], "error: no quorum: 0 of 3 masters vote, 2 are needed");
    assert_eq!(all[1], "info: 3 masters are on 127.0.0.1");
    let one = findings(&object, Some(servers[0].name()));
    assert!(one[0].starts_with("error: not admitted: new or emptied, its quarantine"), "{one:?}");
    let dbsize: usize = text(&servers[0], &["DBSIZE"]);
    assert_eq!(dbsize, 0, "nothing is written");
    let people = ask(&servers, ["doctor"]);
    assert!(people.cause().starts_with("redlock: 4 findings: no quorum"), "{people:?}");
    assert!(people.out.contains("brand new? run redlock init"), "{people:?}");
}

#[test]
fn what_may_cost_a_lock_is_found_on_the_master_where_it_is() {
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

#[test]
fn without_a_quarantine_a_master_must_keep_what_it_answers() {
    let servers = brand_new(1);
    let found = || {
        let answer = ask(&servers, ["--quarantine", "off", "doctor", "--json"]);
        findings(&answer.json(), Some(servers[0].name()))
    };
    assert_eq!(found(), ["warning: may forget what it has answered"]);
    servers[0].command(&["CONFIG", "SET", "appendonly", "yes"]).unwrap();
    servers[0].command(&["CONFIG", "SET", "appendfsync", "always"]).unwrap();
    assert_eq!(found(), Vec::<String>::new());
}

#[test]
fn clients_without_a_quarantine_are_told_from_brand_new_masters() {
    let servers = brand_new(3);
    ask(&servers, ["--quarantine", "off", "run", "k", "--", "true"]).success();
    let answer = ask(&servers, ["doctor", "--json"]);
    let object = answer.json();
    let one = findings(&object, Some(servers[0].name()));
    let what = "error: not admitted: clients with Quarantine::Off use this namespace";
    assert!(one[0].starts_with(what), "{one:?}");
    let people = ask(&servers, ["doctor"]);
    assert!(!people.out.contains("new or emptied"), "{people:?}");
    for cure in ["REDLOCK_QUARANTINE=off for this client", "redlock init --again"] {
        assert!(people.out.contains(cure), "{people:?}");
    }
    for words in [["status", "k"], ["acquire", "k"]] {
        let answer = ask(&servers, words);
        assert_eq!(answer.code, 69, "{answer:?}");
        let cause = answer.cause();
        assert!(cause.contains("(--quarantine off, REDLOCK_QUARANTINE=off)"), "{cause}");
        assert!(!cause.contains("new or emptied") && !cause.contains("brand new?"), "{cause}");
    }
    let refused = ask(&servers, ["init", "--yes"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.cause().contains("redlock init --again converts it"), "{refused:?}");
    assert!(!refused.cause().contains("a quarantine ends by itself"), "{refused:?}");
    assert_eq!(ask(&servers, ["--quarantine", "off", "status", "k"]).code, 1, "it is free");
    ask(&servers, ["init", "--again"]).success();
    assert_eq!(ask(&servers, ["status", "k"]).code, 1);
}

#[test]
fn limits_that_differ_are_found() {
    let long = ServerOptions::new().max_ttl(std::time::Duration::from_secs(90));
    let servers = [RedisServers::start(1).unwrap(), RedisServers::with(1, &long).unwrap()];
    let urls: Vec<_> = servers.iter().flat_map(|servers| servers.urls()).collect();
    let mut command = bare(["doctor", "--json"]);
    let answer = answer_of(command.env("REDLOCK_NODES", urls.join(",")));
    let all = findings(&answer.json(), None);
    assert!(
        all.contains(&"warning: max_ttl is 60s on one master and 90s on another".into()),
        "{all:?}"
    );
}

#[test]
fn rights_that_are_missing_are_found() {
    let servers = RedisServers::start(1).unwrap();
    let mut user = vec!["ACL", "SETUSER", "few", "on", ">secret", "~*", "+@all"];
    user.extend(["-client|kill", "-client|tracking", "-eval", "-zscore"]);
    servers[0].command(&user).unwrap();
    let url = servers[0].url().replace("redis://", "redis://few:secret@");
    let mut command = redlock(&servers, ["doctor", "--json"]);
    let answer = answer_of(command.env("REDLOCK_NODES", &url));
    assert_eq!(answer.code, 1, "{answer:?}");
    let found = findings(&answer.json(), Some(servers[0].name()));
    let lacks = |rights: &str| format!("warning: its user lacks {rights}");
    let silent = "warning: reports no changes of keys".to_owned();
    assert_eq!(found, [silent.clone(), lacks("+client|kill +eval +zscore")]);
    let mut command = redlock(&servers, ["doctor", "--plain", "--json"]);
    let answer = answer_of(command.env("REDLOCK_NODES", &url));
    let found = findings(&answer.json(), Some(servers[0].name()));
    assert_eq!(found, [silent, lacks("+client|kill +eval")], "plain locks have no ballots");
    servers[0].command(&["ACL", "SETUSER", "few", "-hgetall"]).unwrap();
    let mut command = redlock(&servers, ["doctor", "--json"]);
    let answer = answer_of(command.env("REDLOCK_NODES", &url));
    let found = findings(&answer.json(), Some(servers[0].name()));
    assert!(
        found[0].contains("the record cannot be read") && found[0].contains("hgetall"),
        "{found:?}"
    );
}

#[test]
fn ballots_that_another_program_has_written_are_found() {
    let servers = RedisServers::start(3).unwrap();
    let sets: Vec<String> = text(&servers[1], &["KEYS", "redlock-quorum:1:ballots:*"]);
    for (member, score) in [("7", "9007199254740992"), ("9", "3000000000000000"), ("8", "1.5")] {
        servers[1].command(&["ZADD", &sets[0], score, member]).unwrap();
    }
    let answer = ask(&servers, ["doctor", "--json"]);
    assert_eq!(answer.code, 1);
    let of = |place: usize| findings(&answer.json(), Some(servers[place].name()));
    let found = "error: 2 of its ballots are foreign, such as 7: 9007199254740992";
    assert_eq!((of(0), of(1)), (Vec::new(), vec![found.to_owned()]));
    assert_eq!(answer.json()["nodes"][1]["foreign_scores"][1], "8: 1.5");
    let plain = ask(&servers, ["doctor", "--plain", "--json"]).json();
    assert_eq!(findings(&plain, Some(servers[1].name())), Vec::<String>::new());
}

/// So it is on the machine of a developer, and in CI.
#[test]
fn masters_on_one_host_are_told_and_are_no_finding_by_themselves() {
    let servers = RedisServers::start(3).unwrap();
    let answer = ask(&servers, ["doctor", "--json"]);
    answer.success();
    assert_eq!(findings(&answer.json(), None), ["info: 3 masters are on 127.0.0.1"]);
    let people = ask(&servers, ["doctor"]);
    let said = people.success();
    assert!(said.contains("info: 3 masters") && said.contains("nothing is wrong"), "{said}");
}
