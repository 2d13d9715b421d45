//! Lists of masters that may be wrong, and the advice that is printed about them.

use redlock_testkit::lab::text;
use redlock_testkit::{RedisServer, RedisServers};

use crate::lists::{RECORD, brand_new, findings, names, notes, on, set, urls};
use crate::support::{Answer, answer_of, ask, bare, poll};

/// Five masters with a set, then one more.
fn five_and_one() -> RedisServers {
    let servers = brand_new(6);
    let five: Vec<_> = servers[..5].iter().collect();
    on(&five, ["init", "--yes"]).success();
    servers
}

/// The masters at these places.
fn at<'a>(servers: &'a RedisServers, places: &[usize]) -> Vec<&'a RedisServer> {
    places.iter().map(|place| &servers[*place]).collect()
}

fn warnings(answer: &Answer) -> Vec<String> {
    let found = findings(answer).into_iter();
    found.filter(|(severity, _)| severity == "warning").map(|(_, what)| what).collect()
}

/// Returns the answer with this list in other words than URLs.
fn with_nodes(nodes: &str, words: &[&str]) -> Answer {
    answer_of(bare([]).args(words).env("REDLOCK_NODES", nodes))
}

/// The list from before a master was replaced: as long as the present one.
#[test]
fn outdated_list_warns_while_the_former_master_is_dead() {
    let servers = brand_new(6);
    let (former, present) = (at(&servers, &[0, 1, 2, 3, 4]), at(&servers, &[0, 1, 2, 3, 5]));
    servers[4].kill();
    on(&present, ["init", "--yes"]).success();
    let run = on(&former, ["run", "k", "--", "true"]);
    assert_eq!((run.code, notes(&run).len()), (0, 1), "{run:?}");
    let named = format!("{} is not in the recorded set (the nearest name is ", former[4].name());
    assert!(notes(&run)[0].contains(&named), "{run:?}");
    for lists in [names(&former), names(&present)] {
        assert!(notes(&run)[0].contains(&lists), "{run:?}");
    }
    let doctor = on(&former, ["doctor", "--json"]);
    assert_eq!((doctor.code, warnings(&doctor).len()), (1, 1), "{doctor:?}");
    assert!(warnings(&doctor)[0].contains(&named), "{doctor:?}");
    let present = on(&present, ["run", "k", "--", "true"]);
    assert_eq!((present.code, present.err.as_str()), (0, ""));
}

/// It has no record, so it looks like a master that has restarted.
#[test]
fn stranger_without_a_record_is_a_warning_with_init_as_the_fix() {
    let servers = five_and_one();
    let list = at(&servers, &[0, 1, 2, 3, 5]);
    let run = on(&list, ["run", "k", "--", "true"]);
    assert_eq!((run.code, notes(&run).len()), (0, 1), "{run:?}");
    let named = format!("{} is not in the recorded set", servers[5].name());
    assert!(notes(&run)[0].contains(&named), "{run:?}");
    let doctor = on(&list, ["doctor", "--json"]);
    assert_eq!((doctor.code, warnings(&doctor).len()), (1, 1), "{doctor:?}");
    assert!(warnings(&doctor)[0].contains(&named), "{doctor:?}");
    assert!(doctor.out.contains("run redlock init when every master votes"), "{doctor:?}");
    let init = on(&list, ["init", "--yes"]);
    assert_eq!((init.code, notes(&init).len()), (64, 1), "it does not vote yet: {init:?}");
}

/// When the lock is acquired, the stranger has the set of the other master.
#[test]
fn stranger_is_a_warning_during_its_quarantine() {
    let servers = brand_new(3);
    on(&at(&servers, &[0, 1]), ["init", "--yes", "--max-ttl", "5s"]).success();
    let list = at(&servers, &[0, 2]);
    let run = on(&list, ["run", "k", "--ttl", "5s", "--wait", "15s", "--", "true"]);
    assert_eq!((run.code, notes(&run).len()), (0, 1), "{run:?}");
    let named = format!("{} is not in the recorded set", servers[2].name());
    assert!(notes(&run)[0].contains(&named), "{run:?}");
    assert_eq!(set(&servers[2]), set(&servers[0]));
}

/// Another spelling of several masters looks like other masters.
#[test]
fn doctor_advises_what_init_accepts_for_unrecorded_names() {
    let servers = brand_new(3);
    ask(&servers, ["init", "--yes"]).success();
    let [a, b, c] = [0, 1, 2].map(|place| servers[place].url());
    let respelled = [a, b].map(|url| url.replace("127.0.0.1", "localhost")).join(",") + "," + &c;
    let doctor = with_nodes(&respelled, &["doctor"]);
    assert!(
        doctor.out.contains("is right and no lock is held, run redlock init --again"),
        "{doctor:?}"
    );
    assert_eq!(with_nodes(&respelled, &["init", "--yes"]).code, 64);
    with_nodes(&respelled, &["init", "--again"]).success();
    assert_eq!(with_nodes(&respelled, &["doctor"]).code, 0);
}

/// Names do not contain the database, so both lists look the same.
#[test]
fn doctor_warns_of_a_list_with_different_databases() {
    let servers = brand_new(3);
    ask(&servers, ["init", "--yes"]).success();
    let urls = [servers[0].url(), format!("{}/1", servers[1].url()), servers[2].url()].join(",");
    let doctor = with_nodes(&urls, &["doctor", "--json"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let [a, b, c] = [0, 1, 2].map(|place| servers[place].name());
    let what = format!("the URLs name different databases: {a} 0, {b} 1, {c} 0");
    assert!(doctor.out.contains(&what), "{doctor:?}");
    let same = ask(&servers, ["doctor"]);
    assert_eq!(same.code, 0, "{same:?}");
}

/// A quarantine gives a wrong master the set of the others, so its id proves nothing.
#[test]
fn doctor_warns_of_an_admitted_master_with_an_unrecorded_name() {
    let servers = five_and_one();
    on(&at(&servers, &[5]), ["init", "--yes"]).success();
    let list = at(&servers, &[0, 1, 2, 3, 5]);
    let record: Vec<String> = text(&servers[0], &["HMGET", RECORD, "set", "names"]);
    for has_set in [true, false] {
        match has_set {
            true => servers[5].command(&["HSET", RECORD, "set", &record[0], "names", &record[1]]),
            false => servers[5].command(&["HDEL", RECORD, "set", "names"]),
        }
        .unwrap();
        let doctor = on(&list, ["doctor", "--json"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        let named = format!("{} is not in the recorded set", servers[5].name());
        assert!(warnings(&doctor)[0].contains(&named), "{doctor:?}");
        assert!(doctor.out.contains("if it is right, run redlock init\""), "{doctor:?}");
    }
    on(&list, ["init", "--yes"]).success();
    assert_eq!(warnings(&on(&list, ["doctor", "--json"])), [""; 0], "the advice works");
}

#[test]
fn stranger_of_another_set_size_is_not_the_recorded_set() {
    let (servers, others) = (five_and_one(), brand_new(4));
    on(&others.iter().collect::<Vec<_>>(), ["init", "--yes"]).success();
    let mut list = at(&servers, &[0, 1, 2, 3]);
    list.push(&others[0]);
    let run = on(&list, ["run", "k", "--", "true"]);
    assert_eq!((run.code, notes(&run).len()), (0, 1), "{run:?}");
    let said = format!(
        "one master belongs to another set, {}: it belongs to a set of 4 masters ({})",
        others[0].name(),
        names(&others.iter().collect::<Vec<_>>())
    );
    assert!(notes(&run)[0].contains(&said), "{run:?}");
    assert!(!run.err.contains("the recorded set has"), "{run:?}");
    let doctor = on(&list, ["doctor", "--json"]);
    assert!(warnings(&doctor)[0].contains(&said), "{doctor:?}");
    assert!(run.err.contains("run redlock init --again"), "init refuses without it: {run:?}");
    assert_eq!(on(&list, ["init", "--yes"]).code, 64);
}

#[test]
fn mistyped_address_is_compared_with_the_recorded_names() {
    let servers = five_and_one();
    let four = at(&servers, &[0, 1, 2, 3]);
    let typed = format!("{},redis://127.0.0.1:1", urls(&four));
    let named = format!("127.0.0.1:1 is not in the recorded set (the nearest name is {})", {
        servers[4].name()
    });
    let init = with_nodes(&typed, &["init", "--yes"]);
    assert_eq!(init.code, 64, "{init:?}");
    assert!(init.cause().contains(&named) && !init.err.contains("--again"), "{init:?}");
    let plain = with_nodes(&typed, &["init"]);
    assert!(plain.code == 64 && plain.cause().contains(&named), "{plain:?}");
    let run = with_nodes(&typed, &["run", "k", "--", "true"]);
    assert!(run.code == 0 && notes(&run)[0].contains(&named), "{run:?}");
    let doctor = with_nodes(&typed, &["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(doctor.out.contains(&named), "{doctor:?}");
    assert!(doctor.out.contains("fix:    correct its address in the list"), "{doctor:?}");
}

/// The advice is followed here.
#[test]
fn advice_about_a_wrong_list_works_in_each_state() {
    let servers = five_and_one();
    let (four, two) = (at(&servers, &[0, 1, 2, 3]), at(&servers, &[0, 1]));
    let run = on(&two, ["run", "k", "--", "true"]);
    assert_eq!(run.code, 69, "{run:?}");
    let doctor = on(&two, ["doctor"]);
    for said in [&run.err, &doctor.out] {
        assert!(said.contains("run redlock init --again when every master answers"), "{said}");
    }
    assert_eq!(on(&two, ["init", "--yes"]).code, 64);
    let run = on(&four, ["run", "k", "--", "true"]);
    assert!(run.err.contains("run redlock init when every master votes"), "{run:?}");
    on(&four, ["init", "--yes"]).success();
    assert_eq!(on(&four, ["run", "k", "--", "true"]).err, "");
    on(&two, ["init", "--again"]).success();
    assert_eq!(on(&two, ["run", "k", "--", "true"]).err, "");
}

#[test]
fn refused_masters_are_not_called_admitted_by_doctor() {
    let servers = five_and_one();
    let list = at(&servers, &[0, 1]);
    let json = on(&list, ["doctor", "--json"]).json();
    assert_eq!(
        (&json["nodes"][0]["state"], &json["nodes"][1]["state"]),
        (&"refused".into(), &"refused".into())
    );
    let shown = on(&list, ["doctor"]).out;
    let row = shown.lines().next().unwrap();
    assert!(row.starts_with("2 masters  refused  not admitted: "), "{row}");
    let each = on(&list, ["doctor", "-v"]).out;
    assert!(each.starts_with(&format!("{}  refused  up for ", servers[0].name())), "{each}");
}

/// The sets differ, which another `init` may end, so the command waits.
#[test]
fn lists_of_two_sets_show_the_list_of_the_client_once() {
    let (servers, others) = (five_and_one(), brand_new(5));
    on(&others.iter().collect::<Vec<_>>(), ["init", "--yes"]).success();
    let mut list = at(&servers, &[0, 1, 2]);
    list.extend([&others[0], &others[1]]);
    for words in [
        ["run", "k", "--wait", "100ms", "--", "true"],
        ["acquire", "k", "--wait", "100ms", "--ttl", "9s"],
    ] {
        let refused = on(&list, words);
        assert_eq!(refused.code, 69, "{refused:?}");
        let line = refused.cause();
        assert_eq!(line.matches(&format!("lists 5 ({})", names(&list))).count(), 1, "{refused:?}");
        assert_eq!(line.matches("belong to different sets").count(), 1, "{refused:?}");
        for set in [at(&servers, &[0, 1, 2, 3, 4]), others.iter().collect()] {
            assert!(line.contains(&format!("a set of 5 masters ({})", names(&set))), "{refused:?}");
        }
    }
}

#[test]
fn duplicate_addresses_are_listed_separately() {
    let servers = five_and_one();
    let five = at(&servers, &[0, 1, 2, 3, 4]);
    let local = |place: usize| format!("localhost:{}", servers[place].port());
    let typed = format!("{},redis://{},redis://{}", urls(&five), local(0), local(1));
    let run = with_nodes(&typed, &["run", "k", "--", "true"]);
    assert_eq!((run.code, notes(&run)), (0, vec![]), "{run:?}");
    // Of two addresses, the first one to connect votes. One of the seven may be connected too late
    // to be named.
    let servers_named = [local(0), servers[0].name(), local(1), servers[1].name()];
    let named = servers_named.map(|name| format!("duplicate address of {name}"));
    assert!(named.iter().any(|named| run.err.contains(named)), "{run:?}");
    for words in [&["init", "--yes"][..], &["init"]] {
        let init = with_nodes(&typed, words);
        assert_eq!(init.code, 64, "{init:?}");
        assert!(init.cause().contains("the list has duplicate addresses"), "{init:?}");
        assert!(init.cause().ends_with("list each server once"), "{init:?}");
    }
    let before = set(&servers[0]);
    with_nodes(&typed, &["init", "--again"]).success();
    assert!(before.is_some() && set(&servers[0]) == before, "they are not recorded");
    let doctor = with_nodes(&typed, &["doctor"]);
    let lists = format!("lists 5 ({}) and 2 duplicate addresses (", names(&five));
    assert!(doctor.out.contains(&lists), "{doctor:?}");
    // Two of the five are missing. Before the duplicates are connected, five addresses fit the set,
    // and a quorum of them is all three servers.
    let three = format!("{},redis://{},redis://{}", urls(&five[..3]), local(0), local(1));
    let refused = poll("the duplicates are connected before the lock is granted", || {
        let run = with_nodes(&three, &["run", "k", "--", "true"]);
        (run.code != 0).then_some(run)
    });
    assert_eq!(refused.code, 69, "{refused:?}");
    let lists = format!("lists 3 ({}) and 2 duplicate addresses", names(&five[..3]));
    assert!(refused.cause().contains(&lists), "{refused:?}");
}

/// One server without a record takes the places of three masters. No message advises to wait for
/// it, or only about the recorded set.
#[test]
fn server_listed_three_times_is_the_cause_and_the_fix() {
    let servers = brand_new(6);
    let new = &servers[5];
    let thrice = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("{host}:{}", new.port()));
    let thrice_again = thrice.iter().map(|name| format!("redis://{name}"));
    let thrice_again = thrice_again.collect::<Vec<_>>().join(",");
    let words = [
        &["run", "k", "--wait", "0", "--", "true"][..],
        &["acquire", "k", "--wait", "0"],
        &["extend", "k", "a-token"],
        &["status", "k"],
        &["init", "--yes"],
        &["init"],
    ];
    for (recorded, listed) in [(3, 3), (5, 3), (5, 2), (3, 2), (1, 1), (0, 2)] {
        servers.iter().for_each(|server| drop(server.command(&["FLUSHALL"]).unwrap()));
        let set: Vec<_> = servers[..recorded].iter().collect();
        if recorded > 0 {
            on(&set, ["init", "--yes"]).success();
        }
        let right = urls(&servers[..listed].iter().collect::<Vec<_>>());
        let list = format!("{right},{thrice_again}");
        for words in words {
            let case = format!("{listed} of {recorded}, {words:?}");
            let answer = poll("all three addresses are connected in time", || {
                let answer = with_nodes(&list, words);
                (answer.cause().matches("duplicate address").count() > 0).then_some(answer)
            });
            assert!(matches!(answer.code, 64 | 69), "{case}: {answer:?}");
            let cause = answer.cause();
            let is_named = thrice.iter().any(|name| cause.contains(&format!("address of {name}")));
            assert!(is_named, "{case}: {answer:?}");
            assert!(cause.contains("; list each server once"), "{case}: {answer:?}");
            assert!(!cause.contains("ballot"), "{case}: {answer:?}");
            let notes = notes(&answer);
            assert!(notes.iter().all(|note| note.contains("list each server once, and correct")));
            let is_init = words[0] == "init";
            assert!(!is_init || answer.code == 64 && notes.is_empty(), "{case}: {answer:?}");
        }
        let doctor = with_nodes(&list, &["doctor"]);
        assert!(doctor.out.contains("  none  duplicate address of "), "{doctor:?}");
        let errors: Vec<_> =
            doctor.out.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(errors[0].starts_with("error: duplicate address of "), "{errors:?}");
        let of_one_host = format!("info: {} masters are on 127.0.0.1", listed + 1);
        let is_counted_once = doctor.out.contains(&of_one_host) || listed == 1;
        assert!(is_counted_once || !doctor.out.contains("masters are on"), "{doctor:?}");
    }
}

#[test]
fn json_has_the_set_even_if_a_command_is_refused() {
    let servers = five_and_one();
    let refused = on(&at(&servers, &[0, 1]), ["init", "--yes", "--json"]);
    assert_eq!((refused.code, &refused.json()["set"]["size"]), (64, &5.into()), "{refused:?}");
    servers[1].kill();
    let doctor = on(&at(&servers, &[0, 1, 2, 3, 4]), ["doctor", "--json"]);
    let node = &doctor.json()["nodes"][1];
    assert!(node.as_object().unwrap().contains_key("set") && node["set"].is_null(), "{doctor:?}");
    let help = on(&[], ["status", "--help"]);
    let words: Vec<_> = help.success().split_whitespace().collect();
    assert!(words.join(" ").contains("done, set, nodes"), "{help:?}");
}

#[test]
fn init_shows_both_lists_whenever_it_changes_the_set() {
    let servers = five_and_one();
    let (five, four) = (at(&servers, &[0, 1, 2, 3, 4]), at(&servers, &[0, 1, 2, 3]));
    let plain = on(&four, ["init"]);
    assert_eq!(plain.code, 64, "{plain:?}");
    for shown in
        [format!("has 5 masters ({})", names(&five)), format!("lists 4 ({})", names(&four))]
    {
        assert!(plain.cause().contains(&shown), "{plain:?}");
    }
    let changed = on(&four, ["init", "--yes"]);
    changed.success();
    let note = format!(
        "note: the recorded set has changed from 5 masters ({}) to 4 masters ({}): {} is removed; wait \
         for 1m6s (1.1 × max_ttl) before the next change of the list\n",
        names(&five),
        names(&four),
        servers[4].name()
    );
    assert_eq!(changed.err, note);
    let same = on(&at(&servers, &[3, 2, 1, 0]), ["init", "--yes"]);
    assert_eq!((same.code, same.err.as_str()), (0, ""), "the same list in another order");
    let again = on(&five, ["init", "--again"]);
    assert!(again.err.contains("from 4 masters (") && again.err.contains(" is added"), "{again:?}");
}
