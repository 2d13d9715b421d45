//! The servers that the README names are those of the table in `docs/SERVERS.md`.

use crate::README;

const SERVERS: &str = include_str!("../../docs/SERVERS.md");

/// The first and the last version of this kind in the table, without their patch levels.
fn oldest_and_newest(kind: &str) -> String {
    let begin = format!("| {kind} ");
    let rows = SERVERS.lines().filter_map(|line| line.strip_prefix(&begin));
    let minor = |row: &str| row.split('.').take(2).collect::<Vec<_>>().join(".");
    let versions: Vec<_> =
        rows.filter(|row| row.starts_with(char::is_numeric)).map(minor).collect();
    format!("{} to {}", versions.first().unwrap(), versions.last().unwrap())
}

#[test]
fn readme_names_the_oldest_and_the_newest_tested_servers() {
    let [redis, valkey] = ["redis", "valkey"].map(oldest_and_newest);
    let stated = format!("Redis {redis} and Valkey {valkey}");
    assert!(README.contains(&stated), "{stated}");
}
