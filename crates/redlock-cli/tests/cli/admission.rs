//! Which masters vote: `init`, and what other commands say while masters do not.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_testkit::lab::text;
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};
use serde_json::Value;

use crate::support::{answer_of, ask, poll, redlock};
use crate::terminal::Terminal;

pub(crate) fn brand_new(count: usize) -> RedisServers {
    RedisServers::with(count, &ServerOptions::new().brand_new()).unwrap()
}

fn is_untouched(server: &RedisServer) -> bool {
    text::<usize>(server, &["DBSIZE"]) == 0
}

/// One field of each node that a command has printed.
fn column<'a>(object: &'a Value, field: &str) -> Vec<&'a Value> {
    object["nodes"].as_array().unwrap().iter().map(|node| &node[field]).collect()
}

#[test]
fn init_admits_new_masters_and_repeats_without_effect() {
    let servers = brand_new(3);
    let first = ask(&servers, ["init", "--yes", "--json"]);
    first.success();
    let first = first.json();
    assert_eq!(first.as_object().unwrap().len(), 3);
    let names: Vec<_> = servers.iter().map(RedisServer::name).collect();
    assert_eq!((&first["set"]["size"], &first["set"]["names"]), (&3.into(), &names.into()));
    let field: String = text(&servers[2], &["HGET", "redlock-quorum:1", "set"]);
    assert_eq!(field, format!("{} 3", first["set"]["id"].as_str().unwrap()));
    assert_eq!(first["nodes"][0].as_object().unwrap().len(), 5);
    assert_eq!(first["nodes"][0]["node"], servers[0].name());
    assert_eq!(column(&first, "was"), ["none"; 3]);
    assert_eq!(column(&first, "now"), ["admitted"; 3]);
    assert!(first["floor"].as_u64().is_some_and(|floor| floor % 32 == 31), "{first}");
    assert_eq!(first["nodes"][0]["run_id"].as_str().unwrap().len(), 40);
    assert!(first["nodes"][0]["uptime_s"].is_u64());
    ask(&servers, ["acquire", "k"]).success();
    let record = || -> Vec<String> { text(&servers[0], &["HGETALL", "redlock-quorum:1"]) };
    let before = record();
    let second = ask(&servers, ["init", "--yes", "--json"]);
    second.success();
    let second = second.json();
    assert!(column(&second, "was").iter().all(|was| *was == "admitted"), "{second}");
    assert_eq!(second["set"], first["set"]);
    assert!(second["floor"].is_null() && record() == before, "{second}");
    let people = ask(&servers, ["init", "--yes"]);
    assert!(people.success().contains("  admitted -> admitted  run "), "{people:?}");
    assert!(!people.out.contains("0ns"), "whole seconds: {people:?}");
}

#[test]
fn init_prompts_on_a_terminal_and_otherwise_needs_yes() {
    let servers = brand_new(3);
    let answer = ask(&servers, ["init"]);
    assert_eq!((answer.code, answer.out.as_str()), (64, ""), "{answer:?}");
    assert!(answer.cause().contains("use --yes"), "{answer:?}");
    assert!(servers.iter().all(is_untouched));
    for (typed, code) in [("n\n", 1), ("y\n", 0)] {
        let mut terminal = Terminal::start(&redlock(&servers, ["init"]));
        terminal.shows(&format!("note: {}  none  run ", servers[2].name()));
        terminal.shows(
            "Answer y only if (a) none of these masters was restarted, flushed or replaced in",
        );
        assert!(servers.iter().all(is_untouched));
        terminal.type_in(typed);
        assert_eq!(terminal.code(), code);
    }
    assert!(!servers.iter().any(is_untouched));
}

#[test]
fn init_needs_again_if_a_master_may_have_lost_data() {
    let servers = RedisServers::start(3).unwrap();
    servers[0].restart_empty().unwrap();
    let refused = ask(&servers, ["init", "--yes", "--json"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.cause().contains("pass --again if no lock is held"), "{refused:?}");
    assert_eq!(column(&refused.json(), "now"), ["none", "admitted", "admitted"]);
    assert!(is_untouched(&servers[0]));
    let again = ask(&servers, ["init", "--again", "--json"]);
    again.success();
    assert_eq!(column(&again.json(), "was"), ["none", "admitted", "admitted"]);
    assert_eq!(column(&again.json(), "now"), ["admitted"; 3]);
}

#[test]
fn init_takes_a_floor_below_two_to_the_53() {
    let servers = brand_new(1);
    for floor in ["9007199254740992", "-1", "many"] {
        let floor = format!("--floor={floor}");
        let answer = answer_of(redlock(&servers, ["init", "--yes"]).arg(&floor));
        assert_eq!(answer.code, 64, "{floor}: {answer:?}");
        assert!(is_untouched(&servers[0]), "{floor}");
    }
    let floored =
        ask(&servers, ["init", "--yes", "--json", "--far-floor", "--floor", "4000000000000000"]);
    floored.success();
    assert!(floored.json()["floor"].as_u64().unwrap() >= 4_000_000_000_000_000, "{floored:?}");
    assert!(!floored.err.contains("--floor"), "{floored:?}");
    let again = ask(&servers, ["init", "--yes", "--far-floor", "--floor", "4000000000000000"]);
    assert!(again.success().contains("admitted -> admitted"), "{again:?}");
    let said = format!(
        "note: --floor has no effect on {}, which were already admitted",
        servers[0].name()
    );
    assert!(again.err.contains(&said), "{again:?}");
}

/// Tokens never become smaller: such a floor would use up the members of all masters.
#[test]
fn init_refuses_a_floor_that_leaves_few_tokens() {
    let servers = brand_new(3);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let limit = u64::try_from(since_1970.as_micros()).unwrap() + (1 << 51);
    let init = |floor: u64| {
        let floor = format!("--floor={floor}");
        answer_of(redlock(&servers, ["init", "--yes", "--json", "--far-floor"]).arg(&floor))
    };
    let minute = 60_000_000;
    for floor in [9_007_199_254_740_991, limit + minute] {
        let refused = init(floor);
        assert_eq!(refused.code, 64, "{refused:?}");
        assert!(refused.cause().contains("2^51 us") && refused.cause().contains(" at most"));
        assert!(servers.iter().all(is_untouched), "{floor}");
    }
    init(limit - minute).success();
    ask(&servers, ["acquire", "k"]).success();
}

#[test]
fn init_again_converts_a_prefix_either_way() {
    let servers = RedisServers::start(3).unwrap();
    let run = |quarantine| ask(&servers, ["--quarantine", quarantine, "run", "k", "--", "true"]);
    assert_eq!((run("on").code, run("off").code), (0, 69));
    ask(&servers, ["init", "--again", "--quarantine", "off"]).success();
    assert_eq!((run("on").code, run("off").code), (69, 0));
    let refused = ask(&servers, ["init", "--yes"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.cause().contains("use this prefix without a quarantine"), "{refused:?}");
    ask(&servers, ["init", "--again"]).success();
    assert_eq!((run("on").code, run("off").code), (0, 69));
}

#[test]
fn init_without_a_quorum_writes_nothing_and_names_masters() {
    let servers = brand_new(3);
    servers[2].kill();
    let answer = ask(&servers, ["init", "--again", "--json"]);
    answer.success();
    assert_eq!(column(&answer.json(), "now"), ["admitted", "admitted", "unreachable"]);
    assert!(
        answer.err.contains("note: ") && answer.err.contains("redlock init --again"),
        "{answer:?}"
    );
    let servers = brand_new(3);
    servers[1].kill();
    servers[2].kill();
    let answer = ask(&servers, ["init", "--yes", "--json"]);
    assert_eq!(answer.code, 69, "{answer:?}");
    assert!(answer.cause().contains("connection refused"), "{answer:?}");
    assert_eq!(column(&answer.json(), "now"), ["none", "unreachable", "unreachable"]);
    assert!(is_untouched(&servers[0]));
}

#[test]
fn ten_concurrent_inits_admit_all_masters_once() {
    let servers = brand_new(5);
    let answers: Vec<_> = thread::scope(|scope| {
        let init = || ask(&servers, ["init", "--yes", "--json"]);
        let mut started = Vec::new();
        for _ in 0..10 {
            started.push(scope.spawn(init));
        }
        started.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for answer in answers {
        answer.success();
        assert_eq!(column(&answer.json(), "now"), ["admitted"; 5]);
    }
    for server in servers.iter() {
        let ballots = text::<Vec<String>>(server, &["KEYS", "redlock-quorum:1:ballots:*"]);
        assert_eq!(ballots.len(), 1);
        assert_eq!(text::<u32>(server, &["ZCARD", &ballots[0]]), 1024);
    }
    ask(&servers, ["acquire", "k"]).success();
    ask(&servers, ["init", "--yes"]).success();
}

#[test]
fn new_masters_are_reported_with_the_fix() {
    let servers = brand_new(3);
    let answer = ask(&servers, ["acquire", "k"]);
    assert_eq!((answer.code, answer.out.as_str()), (69, ""));
    let cause = answer.cause();
    assert!(cause.contains("if these masters are new, run `redlock init`;"), "{cause}");
    assert!(!cause.contains("--quarantine"), "the command would run next to a lock: {cause}");
    let of_programs = ["redlock.init()", "Quarantine::"];
    assert!(!of_programs.iter().any(|words| cause.contains(words)), "{cause}");
    assert!(cause.contains("not admitted: new, or lost its data"), "{cause}");
    let (answers, wait) = cause.rsplit_once("; otherwise retry with --wait 7").expect("how long");
    assert_eq!(wait.len(), 2, "seventy-odd seconds: {cause}");
    assert!(!answers.contains("votes again"), "the line has one duration: {cause}");
}

/// `init` would be refused, because the record of the third master shows that the prefix is in use.
#[test]
fn restarted_empty_masters_are_not_new_if_one_has_a_record() {
    let servers = RedisServers::start(3).unwrap();
    servers.iter().take(2).for_each(|server| server.restart_empty().unwrap());
    let answer = ask(&servers, ["acquire", "k"]);
    assert_eq!(answer.code, 69, "{answer:?}");
    let cause = answer.cause();
    assert!(cause.contains("): not admitted: lost its data, or was added later, "), "{cause}");
    assert!(cause.contains("; retry with --wait 7") && !cause.contains("redlock init"), "{cause}");
    assert_eq!(ask(&servers, ["init", "--yes"]).code, 64);
}

/// The unreadable master may have the record and the key of a holder.
#[test]
fn restarted_empty_masters_may_not_be_new_if_one_is_paused() {
    let servers = RedisServers::start(3).unwrap();
    servers.iter().take(2).for_each(|server| server.restart_empty().unwrap());
    servers[2].pause().unwrap();
    let answer = ask(&servers, ["acquire", "k"]);
    assert_eq!(answer.code, 69, "{answer:?}");
    let cause = answer.cause();
    assert!(cause.contains("): not admitted: new, or lost its data"), "{cause}");
    assert!(
        !cause.contains("if these masters are new") && !cause.contains("redlock init"),
        "{cause}"
    );
}

/// The time is long enough for the quarantine to end while the next command waits.
#[test]
fn majority_in_quarantine_is_reported_with_the_needed_wait() {
    let options = ServerOptions::new().max_ttl(Duration::from_secs(6));
    let servers = RedisServers::with(3, &options).unwrap();
    servers.iter().take(2).for_each(|server| server.restart_empty().unwrap());
    // A master that did not connect in time may vote, so the line has no time.
    let said = || {
        let answer = ask(&servers, ["acquire", "k", "--ttl", "5s"]);
        assert_eq!(answer.code, 69, "{answer:?}");
        let cause = answer.cause();
        let (answers, wait) = cause.rsplit_once("; retry with --wait ")?;
        assert!(!answers.contains("votes again"), "the line has one duration: {cause}");
        wait.strip_suffix('s').and_then(|wait| wait.parse::<u64>().ok())
    };
    let wait = poll("the time is shown", said);
    assert!((4..=11).contains(&wait), "{wait}");
    let answer = ask(&servers, ["acquire", "k", "--ttl", "5s", "--wait", &format!("{wait}s")]);
    answer.success();
}

#[test]
fn waiting_command_ends_the_quarantine_that_it_began() {
    let servers = brand_new(3);
    let answer = ask(&servers, ["--max-ttl", "2s", "acquire", "k", "--ttl", "2s", "--wait", "20s"]);
    answer.success();
    assert_eq!(ask(&servers, ["status", "k"]).code, 0);
}

#[test]
fn quarantine_is_switched_off_by_option_or_variable() {
    let servers = brand_new(3);
    let with = |value: &str| {
        let mut command = redlock(&servers, ["status", "k"]);
        answer_of(command.env("REDLOCK_QUARANTINE", value))
    };
    assert_eq!((with("off").code, with("").code, with("on").code), (1, 69, 69));
    let wrong = with("maybe");
    assert_eq!(wrong.code, 64);
    assert!(wrong.cause().starts_with("redlock: REDLOCK_QUARANTINE: "), "{wrong:?}");
    assert!(servers.iter().all(is_untouched), "a status leaves no trace");
    let refused = ask(&servers, ["init", "--yes", "--quarantine", "off"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    let cause = refused.cause();
    assert!(cause.contains("use --quarantine on, or --again"), "{cause}");
    assert!(!cause.contains("Quarantine::"), "no name of the library: {cause}");
}

#[test]
fn status_shows_non_voting_masters_with_remaining_time() {
    let servers = RedisServers::start(3).unwrap();
    ask(&servers, ["acquire", "k"]).success();
    servers[1].restart_empty().unwrap();
    ask(&servers, ["acquire", "other"]).success();
    poll("its quarantine has begun", || (!is_untouched(&servers[1])).then_some(()));
    let status = ask(&servers, ["status", "k", "--json"]);
    assert_eq!(status.code, 0, "{status:?}");
    let status = status.json();
    assert_eq!(column(&status, "admitted"), [true, false, true]);
    assert_eq!(column(&status, "state"), ["held", "free", "held"]);
    let again = status["nodes"][1]["votes_again_ms"].as_u64().unwrap();
    assert!((30_000..=67_000).contains(&again), "{status}");
    let cause = status["nodes"][1]["cause"].as_str().unwrap();
    assert!(
        cause.starts_with("not admitted: lost its data, or was added later, in quarantine"),
        "{cause}"
    );
    let people = ask(&servers, ["status", "k"]);
    assert!(
        people.success().contains("s if a client stays connected (it has: free)"),
        "{people:?}"
    );
    servers[0].restart_empty().unwrap();
    assert_eq!(ask(&servers, ["status", "k"]).code, 69, "a single master decides nothing");
}
