//! Wrong lists of masters: which are refused, and how `init` and `doctor` show them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redlock_testkit::lab::text;
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

use crate::support::{Answer, Running, answer_of, ask, bare};
use crate::terminal::Terminal;

pub(crate) const RECORD: &str = "redlock-quorum:1";

pub(crate) fn urls(servers: &[&RedisServer]) -> String {
    servers.iter().map(|server| server.url()).collect::<Vec<_>>().join(",")
}

pub(crate) fn names(servers: &[&RedisServer]) -> String {
    servers.iter().map(|server| server.name()).collect::<Vec<_>>().join(", ")
}

pub(crate) fn on<const N: usize>(servers: &[&RedisServer], words: [&str; N]) -> Answer {
    answer_of(bare(words).env("REDLOCK_NODES", urls(servers)))
}

pub(crate) fn brand_new(count: usize) -> RedisServers {
    RedisServers::with(count, &ServerOptions::new().brand_new()).unwrap()
}

/// Returns the notes about the list.
pub(crate) fn notes(answer: &Answer) -> Vec<&str> {
    let is_ours = |line: &&str| line.starts_with("note: the list of masters may be wrong: ");
    answer.err.lines().filter(is_ours).collect()
}

pub(crate) fn set(server: &RedisServer) -> Option<String> {
    text(server, &["HGET", RECORD, "set"])
}

#[test]
fn lists_of_one_to_three_of_five_are_refused_with_both_lists() {
    let servers = brand_new(5);
    ask(&servers, ["init", "--yes"]).success();
    let all: Vec<_> = servers.iter().collect();
    for count in 1..=3 {
        let list = &all[..count];
        for words in [
            ["run", "k", "--wait", "5s", "--", "true"],
            ["acquire", "k", "--wait", "5s", "--ttl", "9s"],
        ] {
            let began = Instant::now();
            let refused = on(list, words);
            assert_eq!((refused.code, refused.out.as_str()), (69, ""), "{refused:?}");
            let why = format!(
                "not admitted: it belongs to a set of 5 masters ({}), and this client lists \
                 {count} ({})",
                names(&all),
                names(list)
            );
            assert!(refused.cause().contains(&why), "{why}\n{refused:?}");
            let all_of_them = format!(": {count} masters: {why}; ");
            assert!(count == 1 || refused.cause().contains(&all_of_them), "{refused:?}");
            assert!(refused.err.contains("correct the list of masters"), "{refused:?}");
            assert!(began.elapsed() < Duration::from_secs(4), "waiting does not help: {refused:?}");
        }
        let status = on(list, ["status", "k", "--json"]);
        assert_eq!((status.code, &status.json()["state"]), (69, &"undecided".into()), "{status:?}");
        assert_eq!(status.json()["set"]["size"], 5, "{status:?}");
        for listing in [&status, &on(list, ["status"])] {
            assert!(listing.cause().contains("; correct the list of masters; "), "{listing:?}");
        }
        let init = on(list, ["init", "--yes"]);
        assert_eq!(init.code, 64, "{init:?}");
        for words in
            [names(&all), format!("this command lists {count} ({})", names(list)), "--again".into()]
        {
            assert!(init.cause().contains(&words), "{words}: {init:?}");
        }
    }
    assert!(servers.iter().all(|server| text::<usize>(server, &["EXISTS", "k"]) == 0));
}

#[test]
fn lists_differing_by_one_master_work_and_warn_once() {
    let (servers, others) = (brand_new(5), brand_new(3));
    ask(&servers, ["init", "--yes"]).success();
    ask(&others, ["init", "--yes"]).success();
    let all: Vec<_> = servers.iter().collect();
    let mut stranger = all[..4].to_vec();
    stranger.push(&others[0]);
    for list in [&all[..4], &stranger] {
        let run = on(list, ["run", "k", "--", "true"]);
        assert_eq!(run.code, 0, "{run:?}");
        assert_eq!(notes(&run).len(), 1, "{run:?}");
        assert!(notes(&run)[0].contains(&names(list)), "{run:?}");
    }
    let run = on(&all, ["run", "k", "--", "true"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
}

/// Two lists of five share a master.
#[test]
fn lists_of_masters_of_two_sets_are_refused() {
    let servers = brand_new(9);
    let all: Vec<_> = servers.iter().collect();
    on(&all[..5], ["init", "--yes"]).success();
    let second = on(&all[4..], ["init", "--yes"]);
    assert_eq!(second.code, 64, "it prompts: {second:?}");
    assert!(second.cause().contains(&names(&all[..5])), "{second:?}");
    assert!(all[5..].iter().all(|server| set(server).is_none()));
    on(&all[4..], ["init", "--again"]).success();
    let mixed = on(&all[2..7], ["run", "k", "--", "true"]);
    assert_eq!(mixed.code, 69, "{mixed:?}");
    let why = "the masters of this client's list belong to different sets";
    assert!(mixed.cause().contains(why), "{mixed:?}");
    assert!(mixed.cause().contains(&names(&all[..5])) && mixed.cause().contains(&names(&all[4..])));
    on(&all[4..], ["run", "k", "--", "true"]).success();
    let first = on(&all[..5], ["run", "k", "--", "true"]);
    assert_eq!(
        (first.code, notes(&first).len()),
        (0, 1),
        "one of its masters was taken: {first:?}"
    );
    let taken = format!(
        "one master belongs to another set, {}: it belongs to a set of 5 masters ({}), and this \
         command lists 5 ({})",
        all[4].name(),
        names(&all[4..]),
        names(&all[..5])
    );
    assert!(notes(&first)[0].contains(&taken), "{first:?}");
    let refused = on(&[all[0], all[8]], ["run", "k", "--", "true"]);
    assert_eq!((refused.code, notes(&refused)), (69, vec![]), "it shows that once: {refused:?}");
}

#[test]
fn recorded_names_have_no_user_and_no_password() {
    let server = RedisServer::with(&ServerOptions::new().brand_new().password("s3cret")).unwrap();
    on(&[&server], ["init", "--yes"]).success();
    let names: String = text(&server, &["HGET", RECORD, "names"]);
    assert_eq!((names, set(&server).unwrap().len()), (server.name(), 18));
}

#[test]
fn different_spelling_of_the_masters_is_never_refused() {
    let servers = brand_new(3);
    ask(&servers, ["init", "--yes"]).success();
    let spelled: Vec<_> =
        servers.iter().map(|one| format!("redis://localhost:{}", one.port())).collect();
    let on = |words: &[&str]| {
        let mut command = bare([]);
        answer_of(command.args(words).env("REDLOCK_NODES", spelled.join(",")))
    };
    let run = on(&["run", "k", "--", "true"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""));
    let before = set(&servers[0]);
    on(&["init", "--yes"]).success();
    assert!(set(&servers[0]) != before && set(&servers[0]) == set(&servers[2]));
    let run = ask(&servers, ["run", "k", "--", "true"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "names are only shown");
}

/// The findings about the list, by severity and text.
pub(crate) fn findings(answer: &Answer) -> Vec<(String, String)> {
    let found = answer.json()["findings"].as_array().unwrap().clone();
    let text = |one: &serde_json::Value, name: &str| one[name].as_str().unwrap().to_owned();
    let found = found.iter().map(|one| (text(one, "severity"), text(one, "what")));
    found.filter(|(_, what)| what.contains("set") && !what.contains("setuser")).collect()
}

#[test]
fn doctor_shows_the_set_and_the_difference() {
    let (servers, others) = (brand_new(5), brand_new(3));
    ask(&servers, ["init", "--yes"]).success();
    ask(&others, ["init", "--yes"]).success();
    let all: Vec<_> = servers.iter().collect();
    let right = on(&all, ["doctor"]);
    assert_eq!(right.code, 0, "{right:?}");
    let shown = format!("recorded set: 5 masters ({0}); this command lists 5 ({0})", names(&all));
    assert!(right.out.contains(&shown), "{right:?}");
    let right = on(&all, ["doctor", "--json"]);
    assert_eq!((findings(&right), &right.json()["nodes"][0]["set"]["size"]), (vec![], &5.into()));

    let mut stranger = all[..4].to_vec();
    stranger.push(&others[0]);
    let by_one = "the list of masters may be wrong: ";
    for list in [&all[..4], &stranger] {
        let doctor = on(list, ["doctor", "--json"]);
        assert_eq!(doctor.code, 1, "{doctor:?}");
        let found = findings(&doctor);
        assert!(
            found.iter().any(|(severity, what)| severity == "warning" && what.starts_with(by_one)),
            "{found:?}"
        );
    }
    for (list, words) in [
        (&all[..2], "it belongs to a set of 5 masters"),
        (&[all[0], all[1], all[2], &others[0], &others[1]][..], "belong to different sets"),
    ] {
        let doctor = on(list, ["doctor", "--json"]);
        let found = findings(&doctor);
        let is_wrong =
            |(severity, what): &(String, String)| severity == "error" && what.contains(words);
        assert!(doctor.code == 1 && found.iter().any(is_wrong), "{doctor:?}");
    }
}

#[test]
fn doctor_recommends_init_for_records_without_a_set() {
    let servers = RedisServers::start(3).unwrap();
    let forget = |server: &RedisServer| server.command(&["HDEL", RECORD, "set", "names"]).unwrap();
    forget(&servers[0]);
    let some = ask(&servers, ["doctor", "--json"]);
    let what = format!("no set of masters is recorded on {}", servers[0].name());
    assert_eq!((some.code, findings(&some)), (1, vec![("warning".into(), what)]));
    servers[1..].iter().for_each(|server| drop(forget(server)));
    let none = ask(&servers, ["doctor", "--json"]);
    let what = "no set of masters is recorded".to_owned();
    assert_eq!((none.code, findings(&none)), (0, vec![("info".into(), what)]));
    ask(&servers, ["init", "--yes"]).success();
    assert_eq!(findings(&ask(&servers, ["doctor", "--json"])), []);
}

#[test]
fn init_shows_both_lists_on_a_terminal() {
    let servers = brand_new(4);
    ask(&servers, ["init", "--yes"]).success();
    let before = set(&servers[0]);
    let three: Vec<_> = servers[..3].iter().collect();
    for (typed, code) in [("n\n", 1), ("y\n", 0)] {
        let mut command = bare(["init"]);
        command.env("REDLOCK_NODES", urls(&three));
        let mut terminal = Terminal::start(&command);
        terminal.shows("note: the recorded set has 4 masters (");
        terminal.shows("and this command lists 3 (");
        let removed = servers[3].name();
        terminal.shows(&format!("The recorded set of masters changes: {removed} is removed. "));
        terminal.shows("Answer y only if (a) none of these masters was restarted");
        assert_eq!(set(&servers[0]), before);
        terminal.type_in(typed);
        assert_eq!(terminal.code(), code);
    }
    assert!(set(&servers[0]) != before && set(&servers[0]) == set(&servers[2]));
    assert_eq!(set(&servers[3]), before, "it is not on the list");
    let mut command = bare(["init"]);
    command.env("REDLOCK_NODES", servers[0].url());
    let terminal = Terminal::start(&command);
    terminal.shows("which differ by more than one master");
    assert_eq!(terminal.code(), 64, "there is no prompt");
}

/// Writes a set that no `init` has drawn.
fn record_set(servers: &[&RedisServer], set: &str) {
    for server in servers {
        server.command(&["HSET", RECORD, "set", set]).unwrap();
    }
}

/// `redlock extend` is a new process, so it is not a holder that learns of another set later.
#[test]
fn token_extends_and_releases_unless_the_list_is_too_short() {
    let servers = brand_new(5);
    let all: Vec<_> = servers.iter().collect();
    on(&all, ["init", "--yes"]).success();
    let acquired = on(&all, ["acquire", "k", "--ttl", "50s"]);
    let token = acquired.success().split(' ').next().unwrap().to_owned();
    let is_refused = || on(&all, ["acquire", "j"]).code == 69;
    let extend = |list: &[&RedisServer]| on(list, ["extend", "k", &token, "--ttl", "50s"]);
    record_set(&all[3..], "00000000000000aa 5");
    assert!(is_refused());
    extend(&all).success();
    on(&all[..3], ["init", "--again"]).success();
    assert!(is_refused());
    extend(&all).success();
    for word in ["extend", "release"] {
        let short = on(&all[..1], [word, "k", &token]);
        assert_eq!(short.code, 69, "{short:?}");
        assert!(short.cause().contains("it belongs to a set of 3 masters"), "{short:?}");
    }
    on(&all, ["release", "k", &token]).success();
}

/// The two spellings of the list take turns, so each `init` draws a new set.
#[test]
fn held_locks_outlive_repeated_inits() {
    for count in [3, 5] {
        let servers = brand_new(count);
        let all: Vec<_> = servers.iter().collect();
        on(&all, ["init", "--yes"]).success();
        let acquired = on(&all, ["acquire", "k", "--ttl", "50s"]);
        let token = acquired.success().split(' ').next().unwrap().to_owned();
        let mut run = bare(["run", "held", "--ttl", "4s", "--", "sleep", "6"]);
        run.env("REDLOCK_NODES", urls(&all));
        let mut run = Running::start(run);
        let spelled = urls(&all).replace("127.0.0.1", "localhost");
        let mut sets = BTreeSet::new();
        while !run.has_ended() {
            for (nodes, option) in [(&spelled, "--yes"), (&urls(&all), "--again")] {
                answer_of(bare(["init", option]).env("REDLOCK_NODES", nodes)).success();
                sets.insert(set(&servers[0]));
                on(&all, ["extend", "k", &token, "--ttl", "50s"]).success();
            }
        }
        let held = run.answer();
        assert_eq!((held.code, held.err.as_str()), (0, ""), "{held:?}");
        assert!(sets.len() > 2, "{sets:?}");
        on(&all, ["release", "k", &token]).success();
    }
}

#[test]
fn lock_of_an_enclosing_run_is_reused_whatever_the_sets_are() {
    let servers = brand_new(5);
    let all: Vec<_> = servers.iter().collect();
    on(&all, ["init", "--yes"]).success();
    let mut run = bare(["run", "k", "--pass-nodes", "-c"]);
    run.arg(
        r#"REDLOCK_NODES=$THREE "$R" init --again >&2 && "$R" run --reentrant k -- echo inside"#,
    );
    run.env("REDLOCK_NODES", urls(&all)).env("THREE", urls(&all[..3]));
    run.env("R", env!("CARGO_BIN_EXE_redlock"));
    let answer = answer_of(&mut run);
    assert_eq!(answer.success(), "inside", "{answer:?}");
}

/// The accident in the other direction: one master has a set, and the list has more.
#[test]
fn masters_added_to_a_smaller_set_need_init() {
    let servers = brand_new(3);
    let all: Vec<_> = servers.iter().collect();
    on(&all[..1], ["init", "--yes", "--max-ttl", "5s"]).success();
    for wait in ["0", "8s"] {
        let refused = on(&all, ["run", "k", "--ttl", "5s", "--wait", wait, "--", "true"]);
        assert_eq!(refused.code, 69, "{refused:?}");
        assert!(refused.err.contains("redlock init --again"), "{refused:?}");
        assert!(!refused.err.contains("retry with --wait"), "{refused:?}");
        assert!(all[1..].iter().all(|server| set(server).is_none()));
        assert!(all[1..].iter().all(|server| text::<usize>(server, &["EXISTS", RECORD]) == 0));
    }
    on(&all, ["init", "--again"]).success();
    on(&all, ["run", "k", "--ttl", "5s", "--", "true"]).success();
}

#[test]
fn init_recording_no_set_names_the_silent_master() {
    let servers = brand_new(5);
    let all: Vec<_> = servers.iter().collect();
    on(&all, ["init", "--yes"]).success();
    on(&all[..4], ["init", "--yes"]).success();
    let before: Vec<_> = all.iter().map(|server| set(server)).collect();
    servers[3].pause().unwrap();
    let init = on(&all, ["init", "--again"]);
    servers[3].resume().unwrap();
    init.success();
    let name = servers[3].name();
    let said = format!(
        "note: no set of masters was recorded, because {name} did not answer; run redlock init again"
    );
    assert!(init.err.contains(&said), "{init:?}");
    assert!(!init.err.contains("has changed"), "{init:?}");
    assert!(
        init.err.contains("once reachable, it votes immediately if it was admitted"),
        "{init:?}"
    );
    assert_eq!(all.iter().map(|server| set(server)).collect::<Vec<_>>(), before);
}

/// Anyone who can write records could otherwise forge lines on the terminal of an operator.
#[test]
fn init_prints_recorded_names_in_one_line() {
    let servers = brand_new(3);
    let all: Vec<_> = servers.iter().collect();
    on(&all, ["init", "--yes"]).success();
    let forged = "x%0Aredlock:%20forged%1B%5B31m%E2%80%AE";
    let names = format!("{} {} {forged}", all[0].name(), all[1].name());
    for server in &all {
        server.command(&["HSET", RECORD, "names", &names]).unwrap();
    }
    let init = on(&all, ["init", "--yes"]);
    assert_eq!(init.code, 0, "{init:?}");
    assert!(init.err.contains("x%0Aredlock:%20forged%1B[31m%E2%80%AE is removed"), "{init:?}");
    assert!(!init.err.contains('\u{1b}') && !init.err.contains('\u{202e}'), "{init:?}");
    assert!(!init.err.lines().any(|line| line.contains("forged") && line.starts_with("redlock")));
}
