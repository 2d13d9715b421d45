//! Missing rights and commands, and masters that reject queries: what the command reports.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use redlock_testkit::lab::text;
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

use crate::admission::brand_new;
use crate::doctor::{findings, places};
use crate::support::{Answer, answer_of, ask, bare, redlock};

#[test]
fn obstacle_to_an_admission_precedes_its_consequences() {
    let servers = brand_new(1);
    let (_, url) = few_rights(&servers[0]);
    few_without(&servers[0], &["+hset", "+client|kill"]);
    let people = answer_of(bare(["doctor"]).env("REDLOCK_NODES", &url));
    let order = ["warning: its user lacks", "error: not admitted: new", "error: no quorum"];
    assert!(places(&people.out, &order).is_sorted(), "{people:?}");
}

#[test]
fn state_none_is_explained_and_missing_zadd_concerns_fencing() {
    let new = brand_new(1);
    let people = ask(&new, ["doctor"]);
    assert!(people.out.contains("none (not admitted, quarantine not started)"), "{people:?}");
    let servers = RedisServers::start(1).unwrap();
    let (_, url) = few_rights(&servers[0]);
    servers[0].command(&["ACL", "SETUSER", "few", "-zadd"]).unwrap();
    let answer = found_by(&servers, &url, &[]).0.json();
    let found = answer["findings"].as_array().unwrap().iter();
    let mut lacks = found.filter(|found| found["what"] == "its user lacks +zadd");
    let why = lacks.next().unwrap()["impact"].as_str().unwrap();
    assert!(why.contains("fencing tokens") && !why.contains("released"), "{why}");
}

/// Creates a user with the documented rights, and returns its URL.
pub(super) fn few_rights(server: &RedisServer) -> (Vec<&'static str>, String) {
    few_without(server, &[])
}

/// The same without these rights. Not every server can remove the right to a subcommand.
fn few_without(server: &RedisServer, missing: &[&str]) -> (Vec<&'static str>, String) {
    const OPERATIONS: &str = include_str!("../../../../docs/OPERATIONS.md");
    let line = OPERATIONS.lines().find(|line| line.starts_with("ACL SETUSER redlock on ")).unwrap();
    let rights: Vec<&str> = line.split(' ').filter(|word| word.starts_with('+')).collect();
    let user = ["ACL", "SETUSER", "few", "reset", "on", ">secret", "~*"];
    let granted: Vec<&str> =
        rights.iter().filter(|right| !missing.contains(right)).copied().collect();
    server.command(&[&user[..], &granted].concat()).unwrap();
    let channels = OPERATIONS.lines().find_map(|line| {
        line.strip_prefix("ACL SETUSER redlock ").filter(|rules| rules.contains(" &"))
    });
    let rules: Vec<&str> = channels.unwrap().split(' ').collect();
    server.command(&[&["ACL", "SETUSER", "few"], &rules[..]].concat()).unwrap();
    (rights, server.url().replace("redis://", "redis://few:secret@"))
}

/// Returns the output of `doctor` for this user, and the findings about the only master.
fn found_by(servers: &RedisServers, url: &str, words: &[&str]) -> (Answer, Vec<String>) {
    let mut command = redlock(servers, ["doctor", "--json"]);
    let answer = answer_of(command.args(words).env("REDLOCK_NODES", url));
    let found = findings(&answer.json(), Some(servers[0].name()));
    (answer, found)
}

#[test]
fn each_missing_right_of_the_guide_is_named_with_the_fix() {
    let servers = RedisServers::start(1).unwrap();
    let (rights, url) = few_rights(&servers[0]);
    let (answer, found) = found_by(&servers, &url, &[]);
    assert_eq!((answer.code, found), (0, vec![]), "{answer:?}");
    let changes = || {
        let said: String = text(&servers[0], &["INFO", "persistence"]);
        let line = said.lines().find(|line| line.starts_with("rdb_changes_since_last_save:"));
        line.expect("servers count what changes").to_owned()
    };
    let before = changes();
    // A master that denies these cannot be queried for other missing rights, and the finding shows
    // that.
    let (said, tried): (Vec<_>, Vec<_>) =
        rights.into_iter().partition(|right| ["+info", "+client|id"].contains(right));
    for right in tried {
        few_without(&servers[0], &[right]);
        let (answer, found) = found_by(&servers, &url, &[]);
        let lacks = format!("its user lacks {right}");
        assert!(found.iter().any(|found| found.ends_with(&lacks)), "{right}: {found:?}");
        assert!(answer.out.contains(&format!("run: ACL SETUSER few {right}\"")), "{answer:?}");
        let costs = match right {
            "+client|tracking" => "warning: does not report key changes",
            "+hgetall" => "error: not admitted: its INFO or admission record is unreadable",
            "+set" | "+get" | "+del" | "+eval" => "error: its user lacks",
            _ => "warning: its user lacks",
        };
        let shows = |found: &String| found.starts_with(costs);
        assert!(found.iter().any(shows), "{found:?}");
        assert_eq!(answer.code, 1, "{right}: {answer:?}");
    }
    for right in said {
        few_without(&servers[0], &[right]);
        let (_, found) = found_by(&servers, &url, &[]);
        assert!(found.iter().any(|found| found.contains(&right[1..])), "{right}: {found:?}");
    }
    few_rights(&servers[0]);
    servers[0].command(&["ACL", "SETUSER", "few", "resetchannels"]).unwrap();
    let (answer, found) = found_by(&servers, &url, &[]);
    assert_eq!(
        (answer.code, found),
        (1, vec!["warning: its user lacks &redlock-quorum:1:go:*".into()])
    );
    assert_eq!(changes(), before);
}

#[test]
fn rights_that_a_client_does_not_need_are_not_reported() {
    let servers = RedisServers::start(1).unwrap();
    let (_, url) = few_rights(&servers[0]);
    servers[0].command(&["ACL", "SETUSER", "few", "-eval", "-zscore", "-zcard"]).unwrap();
    let lacks = |words: &[&str]| {
        let found = found_by(&servers, &url, words).1;
        found.into_iter().find(|found| found.contains("its user lacks")).unwrap()
    };
    let all = "error: its user lacks +eval +zcard +zscore";
    assert_eq!(lacks(&[]), all);
    assert_eq!(lacks(&["--plain"]), all, "for the queue");
    let unqueued = ["--plain", "--no-queue"];
    assert_eq!(lacks(&unqueued), "error: its user lacks +eval +zcard");
    let published = [&unqueued[..], &["--quarantine", "off"]].concat();
    assert_eq!(lacks(&published), "error: its user lacks +eval", "no admission either");
}

#[test]
fn quarantine_blocked_by_a_missing_right_is_not_awaited() {
    let servers = brand_new(1);
    let (_, url) = few_rights(&servers[0]);
    let cure = || {
        let answer = found_by(&servers, &url, &[]).0.json();
        let findings = answer["findings"].as_array().unwrap().clone();
        findings[1]["fix"].as_str().unwrap().to_owned()
    };
    assert!(cure().contains("otherwise wait for the quarantine"), "{}", cure());
    servers[0].command(&["ACL", "SETUSER", "few", "-hset"]).unwrap();
    assert!(cure().starts_with("fix this master's other findings first"), "{}", cure());
    let narrow = ["ACL", "SETUSER", "few", "+hset", "resetkeys", "~locks:*"];
    servers[0].command(&narrow).unwrap();
    let (_, found) = found_by(&servers, &url, &[]);
    assert!(found.contains(&"warning: its user lacks ~redlock-quorum:1*".into()), "{found:?}");
}

#[test]
fn unexamined_master_is_a_finding() {
    let server = RedisServer::start().unwrap();
    // The library has the only connection.
    server.command(&["CONFIG", "SET", "maxclients", "1"]).unwrap();
    let answer = answer_of(bare(["doctor", "--json"]).env("REDLOCK_NODES", server.url()));
    assert_eq!(answer.code, 1, "{answer:?}");
    let found = findings(&answer.json(), Some(server.name()));
    assert!(
        found.iter().any(|one| one.starts_with("warning: could not be examined: ")),
        "{found:?}"
    );
}

#[test]
fn url_with_resp3_is_examined_like_others() {
    let server = RedisServer::start().unwrap();
    server.command(&["CONFIG", "SET", "appendonly", "no"]).unwrap();
    let url = format!("{}?protocol=resp3", server.url());
    let answer = answer_of(bare(["doctor", "--json"]).env("REDLOCK_NODES", url));
    answer.success();
    assert_eq!(answer.json()["nodes"][0]["keeps_writes"], false, "{answer:?}");
}

#[test]
fn wrong_password_is_not_a_connection_failure() {
    let server = RedisServer::with(&ServerOptions::new().password("secret")).unwrap();
    let url = format!("redis://:wrong@{}", server.name());
    for url in [url, format!("redis://{}", server.name())] {
        let answer = answer_of(bare(["doctor", "--json"]).env("REDLOCK_NODES", url));
        assert_eq!(answer.code, 1, "{answer:?}");
        assert_eq!(answer.json()["nodes"][0]["state"], "refused", "{answer:?}");
    }
}

/// A query that fails while the rest of the master can be examined.
#[test]
fn each_failed_query_is_a_finding_with_its_reason() {
    let servers = RedisServers::start(1).unwrap();
    let (_, url) = few_rights(&servers[0]);
    // Servers before 7.0 cannot allow parts of INFO.
    let parts = ["ACL", "SETUSER", "few", "-info", "+info|server", "+info|replication"];
    servers[0].command(&parts).unwrap();
    let (answer, found) = found_by(&servers, &url, &[]);
    let begin = "warning: could not be examined in part: INFO memory: error reply: NOPERM";
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(found.iter().any(|found| found.starts_with(begin)), "{found:?}");
    let said = &answer.json()["nodes"][0]["failed_queries"][0];
    assert!(said.as_str().unwrap().starts_with("INFO memory: "), "{answer:?}");
}

/// With a quarantine it is harmless, and the user of the guide has no right to it in any case.
#[test]
fn without_quarantine_unreadable_settings_are_information() {
    let servers = brand_new(1);
    let (_, url) = few_rights(&servers[0]);
    let found = found_by(&servers, &url, &["--quarantine", "off"]).1;
    let begin = "info: does not show whether it may lose acknowledged writes (CONFIG GET \
                 appendonly: error reply: NOPERM";
    assert!(found.iter().any(|found| found.starts_with(begin)), "{found:?}");
    let found = found_by(&servers, &url, &[]).1;
    assert!(!found.iter().any(|found| found.contains("CONFIG")), "{found:?}");
}

/// The missing keys are the only fix. A second fix would name commands that the user already has.
#[test]
fn too_narrow_key_rights_have_one_fix() {
    let servers = RedisServers::start(1).unwrap();
    let (_, url) = few_rights(&servers[0]);
    servers[0].command(&["ACL", "SETUSER", "few", "resetkeys", "~locks:*"]).unwrap();
    for words in [&[][..], &["--plain"], &["--quarantine", "off"], &["--plain", "--no-queue"]] {
        let (answer, found) = found_by(&servers, &url, words);
        assert!(found.contains(&"warning: its user lacks ~redlock-quorum:1*".into()), "{found:?}");
        let json = answer.json();
        let fixes = json["findings"].as_array().unwrap().iter();
        let fixes = fixes.map(|found| found["fix"].as_str().unwrap().to_owned());
        let is_other = |fix: &String| fix.contains('+') || fix.contains("Redis 6");
        let others: Vec<_> = fixes.filter(is_other).collect();
        assert_eq!(others, Vec::<String>::new(), "{words:?} {answer:?}");
    }
}

#[test]
fn refused_lock_names_all_missing_rights() {
    let servers = RedisServers::start(1).unwrap();
    let (_, url) = few_rights(&servers[0]);
    servers[0].command(&["ACL", "SETUSER", "few", "-zadd", "-zrem", "-time"]).unwrap();
    let answer = answer_of(bare(["acquire", "k"]).env("REDLOCK_NODES", &url));
    assert_eq!(answer.code, 69, "{answer:?}");
    assert!(answer.cause().contains("denies its user +zadd +time +zrem: "), "{answer:?}");
}

#[test]
fn init_reports_a_wrong_password_as_refused() {
    let server = RedisServer::with(&ServerOptions::new().password("secret")).unwrap();
    let url = format!("redis://:wrong@{}", server.name());
    let answer = answer_of(bare(["init", "--yes", "--json"]).env("REDLOCK_NODES", url));
    assert_eq!(answer.code, 69, "{answer:?}");
    let node = &answer.json()["nodes"][0];
    assert_eq!((&node["was"], &node["now"]), (&"refused".into(), &"refused".into()), "{answer:?}");
}

/// A user may be limited to some locks, so that is not a problem, but both commands name it.
#[test]
fn doctor_and_acl_name_the_same_missing_keys() {
    let servers = RedisServers::start(1).unwrap();
    let (_, url) = few_rights(&servers[0]);
    let own = "~redlock-quorum:1*";
    for (keys, lacks, is_problem) in [
        (&["~*"][..], &[][..], false),
        (&["~locks:*", own], &["~*"], false),
        (&["~*:*"], &["~*"], false),
        (&["~locks:*"], &[own, "~*"], true),
        (&["~redlock*"], &["~*"], false),
        (&["~acl-check*", "~redlock-quorum:1", "~redlock-quorum:1:[bq]*"], &[own], true),
        (&["~acl-check*", "~redlock-quorum:1", "~redlock-quorum:1:[bd]*"], &[own], true),
    ] {
        let user = [&["ACL", "SETUSER", "few", "resetkeys"], keys].concat();
        servers[0].command(&user).unwrap();
        let (doctor, found) = found_by(&servers, &url, &[]);
        let found = found.iter().filter_map(|found| found.split_once("its user lacks "));
        assert_eq!(found.map(|(_, lacks)| lacks).collect::<Vec<_>>(), lacks, "{keys:?}");
        assert_eq!(doctor.code, i32::from(is_problem), "{keys:?}: {doctor:?}");
        let checked = answer_of(bare(["acl", "--check"]).env("REDLOCK_NODES", &url));
        let all = lacks.join(" ");
        assert_eq!(checked.code, i32::from(!lacks.is_empty()), "{keys:?}: {checked:?}");
        assert!(checked.out.contains(&all), "{keys:?}: {checked:?}");
    }
}

/// A cost that is too large makes operators repair at night what can wait.
#[test]
fn impact_of_a_missing_right_is_the_real_one() {
    let servers = RedisServers::start(1).unwrap();
    let (rights, url) = few_rights(&servers[0]);
    let with = |words: &[&str]| answer_of(bare([]).env("REDLOCK_NODES", &url).args(words));
    for right in rights {
        few_without(&servers[0], &[right]);
        let json = with(&["doctor", "--json"]).json();
        let found = json["findings"].as_array().unwrap().iter();
        let impacts: Vec<_> = found.map(|found| found["impact"].as_str().unwrap()).collect();
        let says = |words: &str| impacts.iter().any(|impact| impact.contains(words));
        let is_fatal = says("not acquired")
            || says("grants no locks")
            || impacts.contains(&"it does not vote");
        let acquired = with(&["acquire", right]);
        assert_eq!(acquired.code != 0, is_fatal, "{right}: {impacts:?}: {acquired:?}");
        if acquired.code == 0 {
            let token = acquired.out.split(' ').next().unwrap();
            let extended =
                [0; 2].map(|_| with(&["extend", right, token, "--ttl", "40s"]).code == 0);
            assert_eq!(extended, [!says("not extended"); 2], "{right}: {impacts:?}");
            with(&["release", right, token]).success();
        }
        assert_eq!(text::<i64>(&servers[0], &["EXISTS", right]), 0, "{right}");
    }
}

/// Such a server sends this error for every command, so it shows no right.
#[test]
fn acl_check_examines_no_master_that_rejects_every_command() {
    let server = RedisServer::with(&ServerOptions::new().password("secret")).unwrap();
    let url = format!("redis://{}", server.name());
    let answer = answer_of(bare(["acl", "--check"]).env("REDLOCK_NODES", url));
    assert_eq!(answer.code, 69, "{answer:?}");
    assert!(answer.err.contains("could not be examined: error reply: NOAUTH"), "{answer:?}");
    assert!(answer.out.is_empty(), "{answer:?}");
}

/// A fake: it answers `+OK` to each line that is the name of a command.
#[test]
fn acl_check_examines_no_server_that_answers_ok_to_everything() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for _ in lines.map_while(Result::ok).filter(|line| line.starts_with('*')) {
                if stream.write_all(b"+OK\r\n").is_err() {
                    break;
                }
            }
        }
    });
    let answer = answer_of(bare(["acl", "--check"]).env("REDLOCK_NODES", url));
    assert_eq!((answer.code, &*answer.out), (69, ""), "{answer:?}");
}

/// Rights to read or to write keys came with 7.0.
#[test]
fn acl_check_tests_the_right_to_write_locks() {
    let servers = RedisServers::start(1).unwrap();
    let (_, url) = few_rights(&servers[0]);
    let user = ["ACL", "SETUSER", "few", "resetkeys", "~redlock-quorum:1*", "%R~*"];
    if servers[0].command(&user).is_err() {
        println!("skipped: the server has no rights to only read keys");
        return;
    }
    let answer = answer_of(bare(["acl", "--check"]).env("REDLOCK_NODES", &url));
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.out.contains("lacks ~*"), "{answer:?}");
}
