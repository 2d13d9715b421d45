//! How much a user of the library compiles.

use std::collections::BTreeSet;
use std::process::Command;

use crate::root;

const DESIGN: &str = include_str!("../../DESIGN.md");
const MOST: usize = 70;

/// The crates of the library without its features, on Linux.
fn crates() -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--package=redlock-quorum", "--no-default-features", "--edges=no-dev"]);
    cargo.args(["--target=x86_64-unknown-linux-gnu", "--prefix=none", "--offline", "--locked"]);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let of_line = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    tree.lines().filter(|line| !line.is_empty()).map(of_line).collect()
}

#[test]
fn the_library_without_features_has_at_most_70_crates() {
    let crates = crates();
    assert!(crates.iter().any(|line| line.starts_with("redis v")), "{crates:#?}");
    assert!(crates.len() <= MOST, "{}: {crates:#?}", crates.len());
    let stated = format!("The library without features has {} crates", crates.len());
    assert!(DESIGN.contains(&stated), "{stated}");
}
