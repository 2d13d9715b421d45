//! The programs of the README and the guide, built as a new user builds them: in their own package,
//! with the manifest of the README. Its quick start is run as well.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

mod debian;
mod links;
mod names;
mod quick_start;
mod servers;
mod size;
mod transcripts;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const README: &str = include_str!("../../README.md");
const WORKSPACE: &str = include_str!("../../Cargo.toml");
const GUIDE: &str = include_str!("../../docs/GUIDE.md");

/// Returns the code blocks of a language. The words after a comma are for rustdoc.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("\n```{language}");
    let inside = text.split(start.as_str()).skip(1);
    inside.map(|rest| rest.split_once('\n').unwrap().1.split("\n```").next().unwrap()).collect()
}

/// Whether a reader sees a whole program or test: rustdoc hides no line of it.
fn is_whole(block: &&str) -> bool {
    let begins = ["fn main()", "#[tokio::test"].iter().any(|begin| block.contains(begin));
    begins && !block.lines().any(|line| line == "#" || line.starts_with("# "))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the manifest of the README, with this clone as its path. Dependencies have the same
/// features and profiles as in this workspace, so that their compiled artifacts are reused.
fn manifest() -> String {
    let manifests = blocks(README, "toml");
    assert_eq!(manifests.len(), 1, "{manifests:#?}");
    let clone = "path = \"../redlock/";
    assert!(manifests[0].contains(clone), "{manifests:#?}");
    let dependencies = manifests[0].replace(clone, &format!("path = \"{}/", root().display()));
    let package = "[package]\nname = \"newcomer\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    let lints = "[lints.rust]\nwarnings = \"deny\"\n";
    let profile = WORKSPACE.split_once("\n[profile.dev]\n").unwrap().1;
    // It is below the target directory of the workspace, and no member of it.
    format!("{package}[workspace]\n{dependencies}\n{lints}[profile.dev]\n{profile}")
}

/// Creates a package with these programs and tests, and returns how many of each.
fn package(folder: &Path) -> (usize, usize) {
    for old in ["src", "tests"] {
        drop(fs::remove_dir_all(folder.join(old)));
        fs::create_dir_all(folder.join(old)).unwrap();
    }
    fs::create_dir_all(folder.join("src/bin")).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest()).unwrap();
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let (mut programs, mut tests) = (0, 0);
    for block in blocks(README, "rust").into_iter().chain(blocks(GUIDE, "rust")).filter(is_whole) {
        let (place, number) = match block.contains("fn main()") {
            true => ("src/bin/program", &mut programs),
            false => ("tests/test", &mut tests),
        };
        *number += 1;
        fs::write(folder.join(format!("{place}_{number}.rs")), block).unwrap();
    }
    (programs, tests)
}

#[test]
fn documented_programs_build_with_the_manifest_of_the_readme() {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = scratch.join("newcomer");
    let (programs, tests) = package(&folder);
    assert!(programs > 0 && tests > 0, "{programs} programs, {tests} tests");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["check", "--offline", "--quiet", "--all-targets"]).current_dir(&folder);
    cargo.env("CARGO_TARGET_DIR", scratch.parent().unwrap());
    let built = cargo.output().unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
}
