//! The SQL of `docs/FENCING.md`, run as it is written there. It is for PostgreSQL, and SQLite
//! accepts it as well.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use rusqlite::{Connection, OptionalExtension, ToSql};

const FENCING: &str = include_str!("../../../../../docs/FENCING.md");

/// The statements of the blocks under the heading of the table.
fn statements() -> Vec<String> {
    let from = FENCING.find("\n## A PostgreSQL table\n").unwrap();
    let section = FENCING[from + 1..].split("\n## ").next().unwrap();
    let blocks = section.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).filter(|line| !line.starts_with("--"));
    let text: Vec<&str> = lines.collect();
    let statements = text.join("\n");
    statements.split_terminator(';').map(|one| one.trim().to_owned()).collect()
}

/// How many rows a statement has changed.
fn rows(db: &Connection, sql: &str, values: &[(&str, &dyn ToSql)]) -> usize {
    db.execute(sql, values).unwrap()
}

/// The answer of a statement that installs a token and returns what there is.
fn read(db: &Connection, sql: &str, token: i64) -> Option<i64> {
    let values: [(&str, &dyn ToSql); 2] = [("$1", &"ann"), ("$2", &token)];
    db.query_row(sql, &values, |row| row.get(0)).optional().unwrap()
}

#[test]
fn the_statements_of_the_guide_refuse_late_writes() {
    let statements = statements();
    let [accounts, install, write, fences, test] = &statements[..] else {
        panic!("{statements:?}")
    };
    let db = Connection::open_in_memory().unwrap();
    rows(&db, accounts, &[]);
    rows(&db, "INSERT INTO accounts (id, balance) VALUES ('ann', 100)", &[]);
    assert_eq!((read(&db, install, 32), read(&db, install, 64)), (Some(100), Some(100)));
    assert_eq!(read(&db, install, 32), None, "its lock is over");
    let mut written = Vec::new();
    for (token, balance) in [(32_i64, 70_i64), (64, 95), (64, 90)] {
        let values: [(&str, &dyn ToSql); 3] = [("$1", &"ann"), ("$2", &token), ("$3", &balance)];
        written.push(rows(&db, write, &values));
    }
    assert_eq!((written, read(&db, install, 64)), (vec![0, 1, 1], Some(90)));

    rows(&db, fences, &[]);
    let tested = [32_i64, 64, 32, 64].map(|token| {
        let values: [(&str, &dyn ToSql); 2] = [("$1", &"accounts"), ("$2", &token)];
        rows(&db, test, &values)
    });
    assert_eq!(tested, [1, 1, 0, 1]);
}
