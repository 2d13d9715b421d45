//! The output and the exit code of each command.

use redlock_quorum::FencingToken;
use redlock_testkit::lab::calls;
use redlock_testkit::{RedisServer, RedisServers};

use crate::support::{NODE_TIMEOUT, Running, Scratch, answer_of, ask, copies, poll, redlock};

/// A token is a UUID and a label, which names the process by default.
fn is_token(token: &str) -> bool {
    token.split_once('/').is_some_and(|(uuid, label)| uuid.len() == 36 && label.contains('@'))
}

#[test]
fn acquire_prints_token_fence_and_validity_and_leaves_the_lock() {
    let servers = RedisServers::start(5).unwrap();
    let answer = ask(&servers, ["acquire", "k", "--ttl", "20s"]);
    let words: Vec<_> = answer.success().split(' ').collect();
    assert_eq!(answer.out.lines().count(), 1);
    assert_eq!((words.len(), is_token(words[0])), (3, true));
    assert!(words[1].parse::<FencingToken>().is_ok(), "{words:?}");
    let validity: u64 = words[2].parse().unwrap();
    assert!((15_000..=19_798).contains(&validity), "{validity}");
    // The command does not wait for an unneeded connection.
    assert!(copies(&servers, "k") >= 3);
}

#[test]
fn acquire_prints_an_object_on_demand() {
    let servers = RedisServers::start(1).unwrap();
    let answer = ask(&servers, ["acquire", "k", "--ttl", "20s", "--json"]);
    answer.success();
    let object = answer.json();
    assert_eq!(object.as_object().unwrap().len(), 5);
    assert_eq!((&object["key"], &object["ttl_ms"]), (&"k".into(), &20_000.into()));
    assert!(object["fencing_token"].is_u64());
    assert!(is_token(object["token"].as_str().unwrap()));
    assert!(object["validity_ms"].as_u64().unwrap() <= 19_798);
}

#[test]
fn held_lock_exits_with_75_or_the_given_code() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["SET", "k", "stranger", "PX", "39999"]).unwrap();
    }
    let answer = ask(&servers, ["acquire", "k"]);
    assert_eq!((answer.code, answer.out.as_str()), (75, ""));
    let cause = "redlock: k is held by another client: stranger, expires in ";
    assert!(answer.cause().starts_with(cause), "{answer:?}");
    assert!(answer.shows_three_as_held(), "{answer:?}");
    assert_eq!(ask(&servers, ["acquire", "k", "-E", "9"]).code, 9);
    assert_eq!(ask(&servers, ["run", "k", "-n", "-E", "0", "--", "false"]).code, 0);
    assert_eq!(ask(&servers, ["run", "k", "--wait", "100ms", "--", "true"]).code, 75);
    let json = ask(&servers, ["acquire", "k", "--json"]);
    assert_eq!((json.code, json.out.as_str()), (75, ""));
}

#[test]
fn contenders_with_split_votes_are_all_named() {
    let servers = RedisServers::start(3).unwrap();
    for (server, holder) in servers.iter().zip(["ann", "bob", "cyd"]) {
        server.command(&["SET", "k", holder]).unwrap();
    }
    let answer = ask(&servers, ["acquire", "k"]);
    assert_eq!(answer.code, 75);
    let [a, b, c] = [0, 1, 2].map(|place: usize| servers[place].name());
    let said =
        format!("k is held by other clients: {a} held by ann, {b} held by bob, {c} held by cyd");
    assert!(answer.cause().ends_with(&said), "{answer:?}");
}

#[test]
fn strangers_key_is_respected_and_kept() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["SET", "k", "stranger"]).unwrap();
    }
    assert_eq!(ask(&servers, ["acquire", "k"]).code, 75);
    assert_eq!(ask(&servers, ["run", "k", "-n", "--", "true"]).code, 75);
    assert_eq!(ask(&servers, ["release", "k", "mine"]).code, 1);
    assert_eq!(ask(&servers, ["extend", "k", "mine"]).code, 1);
    let status = ask(&servers, ["status", "k"]);
    assert!(status.success().ends_with("k is held by stranger, never expires"), "{status:?}");
    assert_eq!(copies(&servers, "k"), 3);
}

/// `read .. < <(redlock acquire ..)` would continue with an empty token.
#[test]
fn example_of_the_help_exits_with_the_code_of_acquire() {
    let servers = RedisServers::start(1).unwrap();
    let help = ask(&servers, ["acquire", "--help"]);
    let from = help.out.find("  line=").expect("an example");
    let lines = help.out[from..].lines().take_while(|line| !line.is_empty());
    let example = lines.collect::<Vec<_>>().join("\n").replace("redlock", "\"$R\"");
    let run = || {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("{example}\necho \"$token,$fence,$validity_ms\"")]);
        shell.env("R", env!("CARGO_BIN_EXE_redlock")).env("REDLOCK_NODE_TIMEOUT", NODE_TIMEOUT);
        answer_of(shell.env("REDLOCK_NODES", servers.urls().join(",")))
    };
    let acquired = run();
    let words: Vec<_> = acquired.success().split(',').collect();
    assert_eq!((words.len(), is_token(words[0])), (3, true), "{acquired:?}");
    let held = run();
    assert_eq!((held.code, held.out.as_str()), (75, ""), "{held:?}");
}

#[test]
fn extend_prints_the_same_line_and_release_frees_the_lock_once() {
    let servers = RedisServers::start(3).unwrap();
    let acquired = ask(&servers, ["acquire", "k", "--ttl", "5s"]);
    let token = acquired.success().split(' ').next().unwrap();
    let extended = ask(&servers, ["extend", "k", token, "--ttl", "50s"]);
    let words: Vec<_> = extended.success().split(' ').collect();
    assert_eq!((words.len(), words[0]), (3, token));
    assert!(words[1].parse::<u64>().is_ok(), "{extended:?}");
    assert!(words[2].parse::<u64>().unwrap() > 20_000, "{extended:?}");
    let object = ask(&servers, ["extend", "k", token, "--ttl", "50s", "--json"]).json();
    assert_eq!((&object["token"], &object["ttl_ms"]), (&token.into(), &50_000.into()));

    assert_eq!(ask(&servers, ["release", "k", token]).success(), "");
    assert_eq!(copies(&servers, "k"), 0);
    let again = ask(&servers, ["release", "k", token, "--json"]);
    assert_eq!(again.code, 1);
    assert!(again.cause().contains("not ours"), "{again:?}");
    assert_eq!(again.json(), serde_json::json!({"key": "k", "released": false}));
    let revived = ask(&servers, ["extend", "k", token]);
    assert_eq!((revived.code, revived.out.as_str()), (1, ""));
    assert!(revived.cause().contains("k is not held by this token"), "{revived:?}");
}

#[test]
fn release_prints_an_object_on_demand() {
    let servers = RedisServers::start(1).unwrap();
    let acquired = ask(&servers, ["acquire", "k"]);
    let token = acquired.success().split(' ').next().unwrap();
    let released = ask(&servers, ["release", "k", token, "--json"]);
    released.success();
    assert_eq!(released.json(), serde_json::json!({"key": "k", "released": true}));
}

#[test]
fn status_shows_equal_answers_once_and_each_master_with_v() {
    let servers = RedisServers::start(3).unwrap();
    let free = ask(&servers, ["status", "k"]);
    assert_eq!((free.code, &*free.out), (1, "3 masters  free\nk is free\n"));
    assert!(free.cause().starts_with("redlock: k is free: "), "{free:?}");

    for server in servers.iter() {
        server.command(&["SET", "k", "somebody", "PX", "39999"]).unwrap();
    }
    let held = ask(&servers, ["status", "k", "-v"]);
    held.success();
    let lines: Vec<_> = held.out.lines().collect();
    let expires = |line: &str, said: &str| {
        let rest = line.strip_prefix(said).unwrap_or_else(|| panic!("{held:?}"));
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
        assert!(rest[end..].starts_with('s'), "in seconds: {held:?}");
        assert!((20.0..=40.0).contains(&rest[..end].parse::<f64>().unwrap()), "{held:?}");
    };
    for (line, server) in lines.iter().zip(servers.iter()) {
        expires(line, &format!("{}  held by somebody, expires in ", server.name()));
    }
    expires(lines[3], "k is held by somebody, expires in ");
}

#[test]
fn status_prints_an_object_on_demand() {
    let servers = RedisServers::start(3).unwrap();
    servers[1].command(&["SET", "k", "other", "PX", "60000"]).unwrap();
    servers[2].kill();
    let status = ask(&servers, ["status", "k", "--json"]);
    assert_eq!(status.code, 69);
    let object = status.json();
    assert_eq!((object.as_object().unwrap().len(), &object["waiters"]), (9, &0.into()));
    assert!(object["set"].is_null() || object["set"]["size"] == 3, "{object}");
    assert!(object["done"].is_null());
    assert_eq!((&object["key"], &object["state"]), (&"k".into(), &"undecided".into()));
    assert!(object["token"].is_null() && object["ttl_ms"].is_null());
    let nodes = object["nodes"].as_array().unwrap();
    assert_eq!(nodes[0]["node"], servers[0].name());
    assert_eq!(nodes[0].as_object().unwrap().len(), 8);
    let admitted: Vec<_> = nodes.iter().map(|node| &node["admitted"]).collect();
    assert_eq!(admitted, [&true.into(), &true.into(), &serde_json::Value::Null]);
    assert!(nodes.iter().all(|node| node["votes_again_ms"].is_null()));
    assert!(nodes[0]["latency_us"].is_u64() && nodes[0]["cause"].is_null());
    assert_eq!((&nodes[0]["state"], &nodes[1]["state"]), (&"free".into(), &"held".into()));
    assert_eq!(nodes[1]["token"], "other");
    assert!(nodes[1]["ttl_ms"].as_u64().unwrap() > 30_000);
    assert_eq!(nodes[2]["state"], "unknown");
    assert_eq!(nodes[2]["cause"], "connection refused");
}

#[test]
fn waiter_gets_the_lock_when_it_is_released() {
    let servers = RedisServers::start(3).unwrap();
    let acquired = ask(&servers, ["acquire", "k"]);
    let token = acquired.success().split(' ').next().unwrap();
    let mut waiting = Running::start(redlock(&servers, ["acquire", "k", "--wait", "forever"]));
    // It watches the key at one of the masters when it has tried and been refused.
    let watches = |server: &RedisServer| calls(server, "client|caching") > 0;
    poll("the waiting command has tried", || servers.iter().any(watches).then_some(()));
    assert!(!waiting.has_ended());
    ask(&servers, ["release", "k", token]).success();
    assert!(!waiting.answer().success().starts_with(token));
}

#[test]
fn lock_with_an_unprintable_token_is_released() {
    let servers = RedisServers::start(3).unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = redlock(&servers, ["acquire", "k"]);
    let answer = Running::start_into(&mut command, full.into()).answer();
    assert_eq!(answer.code, 74);
    assert!(answer.cause().contains("No space left"), "{answer:?}");
    assert_eq!(copies(&servers, "k"), 0);
}

#[test]
fn lock_without_a_reader_of_its_token_is_released() {
    let servers = RedisServers::start(3).unwrap();
    let acquire = |redirection: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("\"$R\" acquire k {redirection}")]);
        shell.env("R", env!("CARGO_BIN_EXE_redlock")).env("REDLOCK_NODE_TIMEOUT", NODE_TIMEOUT);
        shell.env("REDLOCK_NODES", servers.urls().join(","));
        answer_of(&mut shell)
    };
    let answer = acquire(">&-");
    assert_eq!(answer.code, 74, "{answer:?}");
    assert!(answer.cause().contains("stdout is closed; the lock was released"), "{answer:?}");
    assert_eq!(copies(&servers, "k"), 0);
    // A user who discards the token does so on purpose.
    acquire(">/dev/null").success();
    assert!(copies(&servers, "k") >= 2);
}

/// It may never have been ours: only the caller knows.
#[test]
fn release_of_a_foreign_lock_names_masters_that_released_it() {
    let servers = RedisServers::start(3).unwrap();
    servers[0].command(&["SET", "k", "f00/of-an-attempt@h:1"]).unwrap();
    let answer = ask(&servers, ["release", "k", "f00/of-an-attempt@h:1"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    let names = [0, 1, 2].map(|place: usize| servers[place].name());
    let said = format!(
        "redlock: k was already lost, or was never held by this token: {} released, 2 masters ({}, {}): not ours",
        names[0], names[1], names[2]
    );
    assert_eq!(answer.cause(), said);
}

/// A shell script with a closed stdout or a full disk must not continue as if it had an answer.
#[test]
fn unwritable_result_is_an_error() {
    let servers = RedisServers::start(3).unwrap();
    ask(&servers, ["acquire", "k"]).success();
    let redirected = |words: &str, redirection: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("\"$R\" {words} {redirection}")]);
        shell.env("R", env!("CARGO_BIN_EXE_redlock")).env("REDLOCK_NODE_TIMEOUT", NODE_TIMEOUT);
        shell.env("REDLOCK_NODES", servers.urls().join(","));
        answer_of(&mut shell)
    };
    for words in ["status k", "status", "init --yes", "doctor", "--help", "run --help", "--version"]
    {
        let full = redirected(words, ">/dev/full");
        assert_eq!(full.code, 74, "{words}: {full:?}");
        assert!(full.cause().contains("No space left"), "{words}: {full:?}");
        assert_ne!(redirected(words, ">/dev/null").code, 74, "{words}");
    }
    for words in ["status k", "status", "init --yes", "doctor"] {
        let closed = redirected(&format!("{words} --json"), ">&-");
        assert_eq!(closed.code, 74, "{words}: {closed:?}");
        assert!(
            closed.cause().contains("the result cannot be printed: stdout is closed"),
            "{closed:?}"
        );
        assert_ne!(redirected(&format!("{words} --json"), ">/dev/null").code, 74, "{words}");
    }
    let head = redirected("--help", "| true");
    assert_eq!((head.code, head.err.as_str()), (0, ""));
}

#[test]
fn key_of_another_type_is_not_a_lock() {
    let servers = RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["HSET", "k", "f", "v"]).unwrap();
    }
    let status = ask(&servers, ["status", "k"]);
    assert_eq!(status.code, 69, "{status:?}");
    assert!(status.out.ends_with("k is not a lock: it is a key of another type\n"), "{status:?}");
    let row = "  held by a key of another type, never expires\n";
    assert!(status.out.contains(row), "{status:?}");
    assert!(status.cause().contains("k is not a lock: it is a key of another type"), "{status:?}");
    let object = ask(&servers, ["status", "k", "--json"]).json();
    assert_eq!((&object["state"], object["token"].is_null()), (&"undecided".into(), true));
    assert_eq!(object["nodes"][0]["state"], "held");
    assert!(object["nodes"][0]["token"].is_null(), "{object}");
    assert_eq!(object["nodes"][0]["cause"], "a key of another type");
    let refused = ask(&servers, ["acquire", "k"]);
    assert_eq!(refused.code, 75);
    let cause = "redlock: k is not a lock: it is a key of another type: ";
    assert!(refused.cause().starts_with(cause), "{refused:?}");
    assert!(!format!("{status:?} {object} {refused:?}").contains("WRONGTYPE"));
}

#[test]
fn each_line_on_stderr_is_written_in_one_piece() {
    let servers = RedisServers::start(3).unwrap();
    servers[0].pause().unwrap();
    for words in [
        &["acquire", "k", "-v"][..],
        &["acquire", "k", "-v"],
        &["acquire", "k", "--ttl", "soon"],
        &["run", "other", "--", "no-such-command"],
        &[],
    ] {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let mut command = redlock(&servers, []);
        command.args(words).stdout(std::process::Stdio::null());
        let mut process = command.stderr(std::os::fd::OwnedFd::from(theirs)).spawn().unwrap();
        drop(command);
        poll("the command ends", || process.try_wait().unwrap());
        ours.set_nonblocking(true).unwrap();
        let mut pieces = Vec::new();
        let mut piece = [0; 1 << 16];
        while let Ok(len @ 1..) = ours.recv(&mut piece) {
            pieces.push(String::from_utf8_lossy(&piece[..len]).into_owned());
        }
        assert!(!pieces.is_empty(), "{words:?}");
        let is_whole = |piece: &String| {
            let is_first = ["note: ", "redlock: "].iter().any(|start| piece.starts_with(start));
            is_first && piece.ends_with('\n')
        };
        assert!(pieces.iter().all(is_whole), "{words:?}: {pieces:?}");
    }
    servers[0].resume().unwrap();
}

#[test]
fn masters_are_read_from_options_environment_or_file() {
    let servers = RedisServers::start(3).unwrap();
    let scratch = Scratch::new("masters");
    let file = scratch.file("nodes");
    std::fs::write(&file, format!("# ours\n{}\n", servers.urls().join("\n"))).unwrap();
    let mut command = crate::support::bare(["status", "k", "--json"]);
    let answer = answer_of(command.env("REDLOCK_NODES_FILE", &file));
    assert_eq!(answer.json()["nodes"].as_array().unwrap().len(), 3);

    let url = servers[0].url();
    let answer = ask(&servers, ["--node", &url, "status", "k", "--json"]);
    assert_eq!(answer.json()["nodes"].as_array().unwrap().len(), 1);
}

#[test]
fn prefix_makes_a_separate_lock() {
    let servers = RedisServers::start(1).unwrap();
    ask(&servers, ["init", "--yes", "--prefix", "p:"]).success();
    ask(&servers, ["acquire", "k"]).success();
    ask(&servers, ["acquire", "k", "--prefix", "p:"]).success();
    assert_eq!(copies(&servers, "p:k"), 1);
    let in_q = |word| {
        let mut command = redlock(&servers, [word, "k"]);
        answer_of(command.env("REDLOCK_PREFIX", "q:")).code
    };
    assert_eq!(in_q("status"), 69, "nothing is known of a namespace that is new");
    ask(&servers, ["init", "--yes", "--prefix", "q:"]).success();
    assert_eq!(in_q("status"), 1);
}

#[test]
fn verbose_prints_each_masters_answer() {
    let servers = RedisServers::start(3).unwrap();
    let answer = ask(&servers, ["acquire", "k", "-v"]);
    answer.success();
    let granted =
        |server: &&RedisServer| answer.err.contains(&format!("{} granted in ", server.name()));
    assert!(servers.iter().filter(granted).count() >= 2, "{answer:?}");
    assert!(servers.iter().all(|server| answer.err.contains(&server.name())), "{answer:?}");
}
