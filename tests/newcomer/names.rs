//! The tests that documents name exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::links::{documents, prose};
use crate::root;

/// Returns `true` for names as long as those of tests. Shorter ones are fields, or parts of names.
fn is_test(word: &&str) -> bool {
    let is_name = word.bytes().all(|byte| b"abcdefghijklmnopqrstuvwxyz0123456789_".contains(&byte));
    is_name && word.matches('_').count() >= 4
}

/// Adds all such names in the sources below this folder.
fn add_names(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_names(&path, names);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            names.extend(words.filter(is_test).map(str::to_owned));
        }
    }
}

#[test]
fn every_test_that_a_document_names_exists() {
    let mut known = BTreeSet::new();
    for folder in ["crates", "tests", "benches"] {
        add_names(&root().join(folder), &mut known);
    }
    let mut named = 0;
    let mut missing = Vec::new();
    // The guide for contributors has an example of a name.
    let documents = documents().into_iter().filter(|file| !file.ends_with("CONTRIBUTING.md"));
    for document in documents {
        for line in prose(&document) {
            let names: Vec<_> = line.split('`').skip(1).step_by(2).filter(is_test).collect();
            named += names.len();
            let unknown = names.into_iter().filter(|name| !known.contains(*name));
            missing.extend(unknown.map(|name| format!("{}: {name}", document.display())));
        }
    }
    assert!(named > 200, "{named}");
    assert!(missing.is_empty(), "{missing:#?}");
}
