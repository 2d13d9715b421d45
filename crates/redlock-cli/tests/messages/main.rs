//! All texts for users, in one table: `messages.snap`. A reviewer sees there how a change affects
//! the wording. `UPDATE=1 cargo test -p redlock-cli --test messages` rewrites it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod literals;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The crates whose texts reach a user.
const CRATES: [&str; 4] = ["redlock-cli", "redlock-core", "redlock-protocol", "redlock-quorum"];

const COMMANDS: [&str; 10] =
    ["run", "acquire", "extend", "release", "status", "init", "doctor", "acl", "dev", "generate"];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn all_messages_are_in_the_table() {
    let table = table();
    let file = here().join("tests/messages.snap");
    if env::var_os("UPDATE").is_some() {
        fs::write(&file, &table).unwrap();
    }
    let known = fs::read_to_string(&file).unwrap();
    let new = table.lines().filter(|line| !known.lines().any(|other| other == *line));
    let old = known.lines().filter(|line| !table.lines().any(|other| other == *line));
    let new: Vec<_> = new.map(|line| format!("+{line}")).collect();
    let old: Vec<_> = old.map(|line| format!("-{line}")).collect();
    let difference = [old, new].concat().join("\n");
    assert!(
        table == known,
        "read these aloud, then UPDATE=1 cargo test -p redlock-cli --test messages:\n{difference}"
    );
}

/// Words that hide the subject or the object of a sentence.
#[test]
fn no_message_uses_a_word_that_hides_its_subject() {
    const VAGUE: [&str; 11] = [
        "whoever",
        "is told",
        "are told",
        "cannot be told",
        "can't be told",
        "for so long",
        "none where",
        "forgot ",
        "forgotten",
        "without a word",
        "of none of",
    ];
    let table = table();
    let vague = |line: &&str| VAGUE.iter().any(|word| line.to_lowercase().contains(word));
    let found: Vec<_> = table.lines().filter(vague).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

fn table() -> String {
    let mut table = String::from(
        "All texts of the command and of the errors of its libraries. Do not edit: UPDATE=1 writes \
         this file.\n",
    );
    for name in CRATES {
        let source = here().join("..").join(name).join("src");
        for file in files(&source) {
            let text = fs::read_to_string(&file).unwrap();
            let messages = literals::messages(&text);
            let path = file.strip_prefix(&source).unwrap().display();
            if !messages.is_empty() {
                write!(table, "\n# {name}/{path}\n").unwrap();
            }
            for message in messages {
                writeln!(table, "{message}").unwrap();
            }
        }
    }
    write!(table, "\n# redlock --help\n{}", help(&["--help"])).unwrap();
    for command in COMMANDS {
        write!(table, "\n# redlock {command} --help\n{}", help(&[command, "--help"])).unwrap();
    }
    table
}

/// The sources, without those of tests, in a fixed order.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if ["tests", "lab"].contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn help(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_redlock")).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}
