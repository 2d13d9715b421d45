//! The story of the example, played for real. Needs a Redis server on the PATH.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use redlock_testkit::RedisServers;
use rusqlite::Connection;

/// A file that goes away with the test.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns the output, and the final count in the table.
fn play(store: &str) -> (String, i64) {
    let masters = RedisServers::start(5).unwrap();
    let name = format!("fenced-test-{store}-{}.db", std::process::id());
    let file = File(std::env::temp_dir().join(name));
    let mut command = Command::new(env!("CARGO_BIN_EXE_fenced"));
    command.args(["play", store]).arg(&file.0).env("REDLOCK_NODES", masters.urls().join(","));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let db = Connection::open(&file.0).unwrap();
    let count = db.query_row("SELECT count FROM stock", [], |row| row.get(0)).unwrap();
    (said, count)
}

#[test]
fn late_write_is_refused_and_its_work_repeated() {
    let (said, count) = play("fenced");
    assert!(said.contains("a larger one was seen"), "{said}");
    assert_eq!(count, 100 - 5 - 30, "both have taken their items: {said}");
}

#[test]
fn without_the_condition_the_late_write_lands() {
    let (said, count) = play("trusting");
    assert_eq!(count, 100 - 30, "the second's items are lost: {said}");
}
