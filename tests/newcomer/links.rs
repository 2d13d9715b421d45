//! The links between the documents: each file and each heading that they name exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// The documents of the root and of `docs/`.
pub(crate) fn documents() -> Vec<PathBuf> {
    let folders = [root(), root().join("docs")];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = entries.map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|end| end == "md")).collect()
}

/// The lines of a document outside of its code blocks.
pub(crate) fn prose(document: &Path) -> Vec<String> {
    let text = fs::read_to_string(document).unwrap();
    let mut is_code = false;
    let mut outside = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    };
    text.lines().filter(|line| outside(line)).map(str::to_owned).collect()
}

/// The anchor that code hosts give to a heading.
fn anchor(heading: &str) -> String {
    let is_kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
    heading.trim().to_lowercase().chars().filter(is_kept).collect::<String>().replace(' ', "-")
}

fn anchors(document: &Path) -> BTreeSet<String> {
    let lines = prose(document);
    let headings = lines.iter().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// The targets of the links in a line, but for those on other hosts.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let rests = line.split("](").skip(1);
    let targets = rests.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.starts_with("http"))
}

fn exists(document: &Path, target: &str) -> bool {
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = match path {
        "" => document.to_owned(),
        path => document.with_file_name(path),
    };
    file.exists() && (heading.is_empty() || anchors(&file).contains(heading))
}

#[test]
fn links_between_documents_resolve() {
    let documents = documents();
    assert!(documents.len() > 10, "{documents:?}");
    let mut broken = Vec::new();
    for document in &documents {
        let lines = prose(document);
        let targets = lines.iter().flat_map(|line| targets(line));
        let missing = targets.filter(|target| !exists(document, target));
        broken.extend(missing.map(|target| format!("{}: {target}", document.display())));
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
