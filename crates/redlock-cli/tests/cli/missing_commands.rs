//! Commands that a server lacks.

use redlock_testkit::lab::text;
use redlock_testkit::{RedisServer, RedisServers, ServerOptions};

use crate::doctor::findings;
use crate::rights::few_rights;
use crate::support::{Answer, answer_of, bare};

/// Three masters, of which the first does not have this command.
fn without_command(command: &str) -> (RedisServer, RedisServers) {
    let options = ServerOptions::new().arguments(["--rename-command", command, ""]);
    (RedisServer::with(&options.brand_new()).unwrap(), RedisServers::start(2).unwrap())
}

fn with_first(first: &RedisServer, others: &RedisServers, words: &[&str]) -> Answer {
    let urls = [first.url(), others[0].url(), others[1].url()].join(",");
    answer_of(bare([]).env("REDLOCK_NODES", urls).args(words))
}

#[test]
fn missing_command_is_named_with_a_working_fix() {
    for command in ["EVAL", "ZREVRANGEBYSCORE", "PEXPIRE", "SUBSCRIBE"] {
        let (first, others) = without_command(command);
        let answer = with_first(&first, &others, &["doctor", "--json"]);
        assert_eq!(answer.code, 1, "{answer:?}");
        let found = findings(&answer.json(), Some(first.name()));
        let named = format!("error: its server lacks {command} (renamed, or too old)");
        assert!(found.contains(&named), "{found:?}");
        assert!(answer.out.contains("remove rename-command"), "{answer:?}");
        assert!(!answer.out.contains("local "), "it quotes a script: {answer:?}");
    }
}

#[test]
fn client_that_cannot_release_does_not_acquire() {
    for (command, modes) in [
        ("EVAL", &[&[][..], &["--no-queue"], &["--plain", "--no-queue"]][..]),
        ("DEL", &[&[], &["--no-queue"], &["--plain", "--no-queue"]]),
    ] {
        let options = ServerOptions::new().arguments(["--rename-command", command, ""]);
        let server = RedisServer::with(&options.brand_new()).unwrap();
        for mode in modes {
            let words = ["acquire", "job", "--quarantine", "off"];
            let mut acquire = bare([]);
            let answer =
                answer_of(acquire.env("REDLOCK_NODES", server.url()).args(words).args(*mode));
            assert_eq!(answer.code, 69, "{command} {mode:?}: {answer:?}");
            assert!(answer.cause().contains(command), "{answer:?}");
            assert!(!answer.cause().contains("local "), "it quotes a script: {answer:?}");
            let left: i64 = text(&server, &["EXISTS", "job"]);
            assert_eq!(left, 0, "{command} {mode:?}");
        }
    }
}

/// One error names one command. After its fix, the next command would fail.
#[test]
fn init_and_acquire_name_all_missing_commands_with_their_cost() {
    const RENAME: &str = "--rename-command";
    let renamed = ServerOptions::new().arguments([RENAME, "EVAL", "", RENAME, "ZADD", ""]);
    let renamed = renamed.arguments([RENAME, "TIME", "", RENAME, "PEXPIRE", ""]);
    let server = RedisServer::with(&renamed.brand_new()).unwrap();
    let say = |words: &[&str]| answer_of(bare([]).env("REDLOCK_NODES", server.url()).args(words));
    let named = "has no PEXPIRE EVAL ZADD TIME (renamed, or too old): locks are not extended; locks \
                 are not acquired";
    let refused = say(&["init", "--yes"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(refused.err.starts_with(&format!("note: {} {named}", server.name())), "{refused:?}");
    let refused = say(&["acquire", "k"]);
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.cause().contains(named), "{refused:?}");
    let fenced = "it takes no ballots, so it grants no locks with fencing tokens";
    assert!(refused.cause().contains(fenced), "{refused:?}");
    // Without a queue and ballots, only quarantines need ZADD.
    let plain = say(&["acquire", "k", "--plain", "--no-queue"]);
    assert!(plain.cause().contains("has no PEXPIRE EVAL"), "{plain:?}");
    assert!(!plain.cause().contains(fenced), "{plain:?}");
}

/// A client that is not allowed to call scripts by their digests sends their text.
#[test]
fn locks_are_extended_and_released_without_evalsha() {
    let renamed = ServerOptions::new().arguments(["--rename-command", "EVALSHA", ""]);
    let renamed = RedisServer::with(&renamed.brand_new()).unwrap();
    answer_of(bare(["init", "--yes"]).env("REDLOCK_NODES", renamed.url())).success();
    let servers = RedisServers::start(1).unwrap();
    let (_, denied) = few_rights(&servers[0]);
    servers[0].command(&["ACL", "SETUSER", "few", "-evalsha"]).unwrap();
    for (server, url) in [(&renamed, renamed.url()), (&servers[0], denied)] {
        let run = |work: &str| {
            let words = ["run", "k", "--ttl", "2s", "--wait", "20s", "-c", work];
            answer_of(bare(words).env("REDLOCK_NODES", &url))
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let all = ["sleep 3", "true", "true"].map(|work| scope.spawn(move || run(work)));
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(answers.iter().all(|answer| answer.code == 0), "{answers:?}");
        assert_eq!(text::<i64>(server, &["EXISTS", "k"]), 0, "the key was left: {answers:?}");
    }
}
