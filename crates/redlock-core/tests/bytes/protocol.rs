//! `docs/PROTOCOL.md` names the keys, fields, arguments and replies that the code writes.

use std::collections::BTreeSet;

use redlock_core::{Call, Leaving, Mark, QueueTicket, Reservation, Resource, SharedQueue};

use crate::admission::{OFF, RECORD, SET};

const DOCUMENT: &str = include_str!("../../../../docs/PROTOCOL.md");

macro_rules! script {
    ($($name:literal),+) => {
        concat!($(include_str!(concat!("../../src/redis/scripts/", $name, ".lua"))),+)
    };
}

/// The code that the scripts of admission share.
const COMMON: &str = script!("record");

/// The scripts on locks, queues and marks, each with all of its text.
const SCRIPTS: [(&str, &str); 10] = [
    ("extend", script!("extend", "shown")),
    ("resume", script!("resume", "shown")),
    ("release", script!("release")),
    ("inspect", script!("inspect", "shown")),
    ("enter", script!("queue", "enter")),
    ("leave", script!("leave_alone", "queue", "leave")),
    ("take", script!("take")),
    ("reserve", script!("reserve")),
    ("read_mark", script!("mark", "read_mark")),
    ("raise_mark", script!("mark", "raise_mark")),
];

const ADMISSION: [(&str, &str); 5] = [
    ("begin", script!("begin")),
    ("note", script!("note")),
    ("admit", script!("admit")),
    ("init", script!("init")),
    ("remove", script!("remove")),
];

/// Words of the document in replies, and the code that writes them.
const REPLIES: [(&str, &[&str]); 10] = [
    ("1", &["return 1\n", "return redis.call('DEL', KEYS[1])"]),
    ("0", &["return 0\n"]),
    ("{value, PTTL}", &["{string.sub(value, 1, 512), redis.call('PTTL', KEYS[1])}"]),
    ("OK", &["return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])"]),
    ("{1, raised, score}", &["return {1, raised, redis.pcall('ZSCORE', KEYS[2], ARGV[#ARGV])}"]),
    ("{1, waiters}", &["return {1, waiters}"]),
    (
        "{0, waiters, rank or -1, value, PTTL}",
        &["return {0, call('ZCARD', QUEUE), call('ZRANK', QUEUE, ticket) or -1, shown, \
           call('PTTL', LOCK)}"],
    ),
    ("{1 or 0, waiters}", &["return {is_ours and 1 or 0, call('ZCARD', QUEUE)}"]),
    ("{mark, s, us}", &["return {value, time[1], time[2]}"]),
    ("AT FIRE LABEL", &["at .. ' ' .. fire .. ' ' .. label"]),
];

/// The code spans of a text.
fn spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The text from one marker to the next.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("no {start}"));
    rest.split_once(end).map_or(rest, |(found, _)| found)
}

/// The cells of the row of a table of section 3 that is about this script.
fn row(name: &str) -> Vec<&'static str> {
    let scripts = between(DOCUMENT, "\n## 3. Scripts\n", "\n## 4. ");
    let start = format!("| `{name}` |");
    let row = scripts.lines().find(|line| line.starts_with(&start));
    row.unwrap_or_else(|| panic!("no row about {name}")).split('|').map(str::trim).collect()
}

/// The largest number of an argument that a script uses.
fn arguments(script: &str) -> usize {
    let numbers = script.split("ARGV[").skip(1).filter_map(|rest| rest.split_once(']'));
    numbers.filter_map(|(number, _)| number.parse().ok()).max().unwrap_or(0)
}

/// The names that a script writes into the record.
fn fields(script: &str) -> BTreeSet<&str> {
    let calls = script.split("call('HSET', RECORD").skip(1);
    let calls = calls.filter_map(|call| call.split_once("\n").map(|_| statement(call)));
    let names = calls.flat_map(quoted).chain(quoted(script).filter(|name| name.starts_with("q:")));
    names.collect()
}

/// The call up to its last bracket.
fn statement(call: &str) -> &str {
    let mut depth = 1;
    let end = call.find(|letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        depth == 0
    });
    &call[..end.unwrap_or(call.len())]
}

fn quoted(script: &str) -> impl Iterator<Item = &str> {
    script
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"))
        .flat_map(|line| line.split('\'').skip(1).step_by(2))
}

#[test]
fn protocol_names_every_key_and_channel() {
    let name = Resource::from("NAME");
    let queue = SharedQueue::new(b"", &name, QueueTicket::random());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let own = |key: &str| key.strip_prefix("p:").unwrap().replace("0123456789abcdef", "ID");
    let expected = BTreeSet::from([
        own(RECORD),
        own(SET),
        own(OFF),
        text(queue.key()),
        text(&Mark::key(b"", &name)),
        format!("{}TICKET", text(queue.channels())),
    ]);
    let keys = between(DOCUMENT, "**D1. Keys.**", "**D2.");
    let named = spans(keys).into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(named, expected);
    let reservation = format!("`{}`", Reservation::PREFIX);
    assert!(between(DOCUMENT, "**D4.", "**D5.").contains(&reservation), "{reservation}");
    let reserved = format!("`{}`", Resource::RESERVED);
    assert!(between(DOCUMENT, "**D2.", "**D3.").contains(&reserved), "{reserved}");
}

#[test]
fn protocol_names_every_field_of_the_record() {
    let table = between(DOCUMENT, "**D6. The record**", "No client uses");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let named = rows.map(|(name, _)| name.trim_end_matches("RUN_ID")).collect::<BTreeSet<_>>();
    let scripts = ADMISSION.iter().map(|(_, script)| *script).chain([COMMON]);
    assert_eq!(named, scripts.flat_map(fields).collect());
}

#[test]
fn protocol_names_the_outcomes_of_admission_by_their_numbers() {
    let line = COMMON.lines().find_map(|line| line.strip_prefix("local DONE, ")).unwrap();
    let (names, numbers) = line.split_once(" = ").unwrap();
    let names = format!("DONE, {names}").to_lowercase().replace('_', " ");
    let written = numbers.split(", ").zip(names.split(", "));
    let written = written.map(|(number, name)| format!("| {number} | {name} |"));
    let table = between(DOCUMENT, "| outcome | meaning |\n|---|---|\n", "\n\n");
    assert_eq!(table.lines().collect::<Vec<_>>(), written.collect::<Vec<_>>());
}

#[test]
fn protocol_has_as_many_arguments_as_each_script() {
    for (name, script) in SCRIPTS {
        let cell = row(name)[3];
        let named = cell.split(", ").filter(|argument| !argument.is_empty()).count();
        let named = match name {
            // `done`, `open` or `undo` is one.
            "leave" => named - 1,
            // ZADD gets the rest as it is.
            "resume" => named - 3,
            _ => named,
        };
        assert_eq!(named, arguments(script), "{name}: {cell}");
    }
    for (name, script) in ADMISSION {
        let cell = row(name)[2].replace("the four", "run, q:id, q:nonce, max_ttl");
        // The pairs of a note are one in the document, and have no number in the script.
        let named = cell.split(", ").count() - usize::from(name == "note");
        assert_eq!(named, arguments(script), "{name}: {cell}");
    }
}

#[test]
fn protocol_names_the_words_of_leave_and_of_calls() {
    let leaving = [Leaving::Done, Leaving::Open, Leaving::Undo].map(Leaving::word);
    assert_eq!(spans(row("leave")[3]), leaving);
    let effects = between(DOCUMENT, "To hand a key to a ticket", "\n\n");
    for call in [Call::Go, Call::Next, Call::Try] {
        assert!(effects.contains(&format!("`{}", call.word())), "{call:?}");
    }
}

#[test]
fn protocol_names_replies_that_the_scripts_return() {
    for (name, script) in SCRIPTS {
        let cells = row(name);
        for reply in spans(cells[4]) {
            let known = REPLIES.iter().find(|(words, _)| *words == reply);
            let (_, code) = known.unwrap_or_else(|| panic!("{name}: unknown reply {reply}"));
            let is_written = code.iter().any(|code| returns(script, code));
            assert!(is_written, "{name} does not reply {reply}");
        }
    }
    let raised = SCRIPTS[9].1;
    assert!(DOCUMENT.contains("`AT FIRE LABEL`") && returns(raised, REPLIES[9].1[0]));
}

/// Returns `true` if the script returns the code, at its end or before the end of a line.
fn returns(script: &str, code: &str) -> bool {
    let ends = |rest: &str| rest.is_empty() || rest.starts_with([' ', '\n', ',']);
    let code = code.trim_end();
    script.match_indices(code).any(|(at, _)| ends(&script[at + code.len()..]))
}
