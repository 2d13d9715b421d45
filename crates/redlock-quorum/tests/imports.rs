//! The shape of the crate, read from its sources: which file imports which.
//!
//! A parent module owns its children, and `use self::child` only states that. The graph consists of
//! each file's imports from `crate` and `super`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The layers of the crate, from the top: no file imports one of a layer above its own.
const LAYERS: [&[&str]; 8] = [
    &["lib"],
    &["blocking"],
    &["recipes"],
    &["builder", "environment", "guard", "handle", "lease", "loss", "marks", "redlock", "request"],
    &["inbox"],
    &["driver"],
    &["counters", "hold"],
    &[
        "error",
        "fencing",
        "init",
        "lock_options",
        "lost",
        "report",
        "run_error",
        "settings",
        "stats",
        "status",
        "votes",
    ],
];

/// The code of each file of the crate with this root, without comments, literals and tests, by the
/// path of its module.
fn sources(first: &Path) -> BTreeMap<Vec<String>, Vec<String>> {
    let mut sources = BTreeMap::new();
    read_module(first, first.parent().unwrap(), &[], &mut sources);
    assert!(sources.len() > 20, "{:?}", sources.keys());
    sources
}

/// Reads one file, and the files of the modules that it declares, except test modules.
fn read_module(
    file: &Path,
    folder: &Path,
    path: &[String],
    sources: &mut BTreeMap<Vec<String>, Vec<String>>,
) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    let tokens = without_tests(&tokens(&text));
    for declared in tokens.windows(3).filter(|three| three[0] == "mod" && three[2] == ";") {
        let name = &declared[1];
        let (flat, nested) = (folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs"));
        let file = if flat.exists() { flat } else { nested };
        let path = [path, std::slice::from_ref(name)].concat();
        read_module(&file, &folder.join(name), &path, sources);
    }
    sources.insert(path.to_vec(), tokens);
}

/// The words and signs of a source text; `::` is one, a string or character is `""`.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (len, is_code) = token(rest, first);
        if is_code {
            tokens.push(if matches!(first, '"' | '\'') { "\"\"" } else { &rest[..len] }.to_owned());
        }
        rest = &rest[len..];
    }
    tokens
}

/// How long the token is with which `text` begins, and whether it is code.
fn token(text: &str, first: char) -> (usize, bool) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let line = || text.find('\n').unwrap_or(text.len());
    let word = || text.find(|c| !is_word(c)).unwrap_or(text.len());
    match first {
        _ if text.starts_with("//") => (line(), false),
        _ if text.starts_with("/*") => (text.find("*/").expect("the comment ends") + 2, false),
        _ if text.starts_with("::") => (2, true),
        '"' => (quoted(text, '"'), true),
        // A lifetime is a sign and a word.
        '\'' if text[1..].starts_with('\\') || text[1..].chars().nth(1) == Some('\'') => {
            (quoted(text, '\''), true)
        }
        c if is_word(c) => (word(), true),
        c => (c.len_utf8(), !c.is_whitespace() && c != '\''),
    }
}

fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    panic!("the literal ends: {text:.40}")
}

/// Returns the tokens without test-only code.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let mut code = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let attribute = test_attribute_len(&tokens[at..]);
        if attribute > 0 {
            at += attribute + item_len(&tokens[at + attribute..]);
        } else {
            code.push(tokens[at].clone());
            at += 1;
        }
    }
    code
}

/// The length of `#[cfg(test)]` and its kin at the beginning of `tokens`; zero where none is.
fn test_attribute_len(tokens: &[String]) -> usize {
    const BEGIN: [&str; 4] = ["#", "[", "cfg", "("];
    if !tokens.iter().take(BEGIN.len()).eq(BEGIN.iter()) {
        return 0;
    }
    let end = tokens.iter().position(|token| token == "]").expect("the attribute ends");
    if tokens[..end].iter().any(|token| token == "test") { end + 1 } else { 0 }
}

/// Up to the end of its block, or its semicolon where it has none.
fn item_len(tokens: &[String]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" if depth == 1 => return at + 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    panic!("the item ends")
}

/// Every path that the module `path` takes from `crate` or `super`, from the root.
fn imports(path: &[String], tokens: &[String]) -> BTreeSet<Vec<String>> {
    let mut imports = BTreeSet::new();
    // The module that the code is in, and how deep in blocks each module within the file begins.
    let (mut inside, mut begins, mut depth) = (path.to_vec(), Vec::new(), 0);
    for (at, token) in tokens.iter().enumerate() {
        let is_path = tokens.get(at + 1).is_some_and(|next| next == "::");
        match token.as_str() {
            "{" => {
                depth += 1;
                if at > 1 && tokens[at - 2] == "mod" {
                    inside.push(tokens[at - 1].clone());
                    begins.push(depth);
                }
            }
            "}" => {
                if begins.pop_if(|begin| *begin == depth).is_some() {
                    inside.pop();
                }
                depth -= 1;
            }
            "crate" if is_path => {
                tree(&tokens[at + 2..], &[], &mut imports);
            }
            "super" if is_path && tokens[at - 1] != "::" => {
                tree(&tokens[at..], &inside, &mut imports);
            }
            _ => {}
        }
    }
    imports
}

/// Reads the part after `::`, a name or a group of them. Returns its number of tokens.
fn tree(tokens: &[String], base: &[String], into: &mut BTreeSet<Vec<String>>) -> usize {
    let mut base = base.to_vec();
    let mut at = 0;
    loop {
        match tokens[at].as_str() {
            "{" => return at + group(&tokens[at..], &base, into),
            "super" => drop(base.pop()),
            name => base.push(name.to_owned()),
        }
        if tokens.get(at + 1).is_none_or(|next| next != "::") {
            into.insert(base);
            return at + 1;
        }
        at += 2;
    }
}

fn group(tokens: &[String], base: &[String], into: &mut BTreeSet<Vec<String>>) -> usize {
    let mut at = 1;
    while tokens[at] != "}" {
        at += if tokens[at] == "," { 1 } else { tree(&tokens[at..], base, into) };
    }
    at + 1
}

type Graph = BTreeMap<String, BTreeSet<String>>;

fn file_name(path: &[String]) -> String {
    if path.is_empty() { "lib".to_owned() } else { path.join("/") }
}

/// Returns the modules of the names that the root re-exports.
fn exported(root: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut exported = BTreeSet::new();
    for at in (2..root.len()).filter(|at| root[at - 2] == "pub" && root[at - 1] == "use") {
        tree(&root[at..], &[], &mut exported);
    }
    let by_name = |path: Vec<String>| Some((path.last()?.clone(), path));
    exported.into_iter().filter_map(by_name).collect()
}

/// Which file of this crate imports which.
fn graph() -> Graph {
    graph_of("redlock-quorum/src/lib.rs")
}

/// Which file of the crate with this root imports which.
fn graph_of(root: &str) -> Graph {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(root));
    let exported = exported(&sources[&Vec::new()]);
    let file = |import: &Vec<String>| {
        let import = exported.get(&import[0]).unwrap_or(import);
        let mut modules = (0..=import.len()).rev().map(|len| &import[..len]);
        file_name(modules.find(|path| sources.contains_key(*path)).expect("the root is there"))
    };
    let edges = |(path, tokens): (&Vec<String>, &Vec<String>)| {
        let own = file_name(path);
        let imported =
            imports(path, tokens).iter().map(file).filter(|other| *other != own).collect();
        (own, imported)
    };
    sources.iter().map(edges).collect()
}

/// Returns the files in a circle of imports. It repeatedly removes every file that imports no
/// remaining file, or that no remaining file imports.
fn circles(graph: &Graph) -> Graph {
    let mut left = graph.clone();
    loop {
        let imported: BTreeSet<String> = left.values().flatten().cloned().collect();
        let before = left.len();
        left.retain(|file, imports| !imports.is_empty() && imported.contains(file));
        let files: BTreeSet<String> = left.keys().cloned().collect();
        left.values_mut().for_each(|imports| imports.retain(|file| files.contains(file)));
        if left.len() == before {
            return left;
        }
    }
}

fn layer(file: &str) -> usize {
    let top = file.split('/').next().unwrap();
    let is_there = |files: &&[&str]| files.contains(&top);
    LAYERS.iter().position(is_there).unwrap_or_else(|| panic!("{file} has no layer: give it one"))
}

#[test]
fn imports_have_no_circles() {
    let crates = ["core", "protocol", "quorum", "testkit"];
    let roots = crates.map(|name| format!("redlock-{name}/src/lib.rs"));
    for root in roots.iter().map(String::as_str).chain(["redlock-cli/src/main.rs"]) {
        let circles = circles(&graph_of(root));
        assert!(circles.is_empty(), "{root}: {circles:#?}");
    }
}

#[test]
fn imports_follow_the_layers() {
    let graph = graph();
    let edges = graph.iter().flat_map(|(file, imports)| imports.iter().map(move |to| (file, to)));
    let up: Vec<_> = edges.filter(|(file, to)| layer(file) > layer(to)).collect();
    assert!(up.is_empty(), "{up:#?}");
}

// The reader itself.

fn names(imports: BTreeSet<Vec<String>>) -> Vec<String> {
    imports.iter().map(|import| import.join("::")).collect()
}

#[test]
fn every_form_of_an_import_is_read() {
    let text = r#"
        use crate::a::{b::{C, D}, e};
        use super::f::G; // use crate::no::no;
        fn h() -> super::super::i::J { "crate::no::no"; ']'; crate::k::l() }
        #[cfg(test)]
        mod tests { use crate::no::no; fn m() {} }
        #[cfg(all(test, feature = "f"))]
        use crate::no;
        #[cfg(unix)]
        use crate::o::P;
        mod q { use super::r; mod s { use super::super::t; } use super::u; }
        pub(super) use super::n::*;
    "#;
    let path = ["x", "y", "z"].map(str::to_owned);
    let tokens = without_tests(&tokens(text));
    assert_eq!(
        names(imports(&path, &tokens)),
        [
            "a::b::C",
            "a::b::D",
            "a::e",
            "k::l",
            "o::P",
            "x::i::J",
            "x::y::f::G",
            "x::y::n::*",
            "x::y::z::r",
            "x::y::z::t",
            "x::y::z::u"
        ]
    );
}

#[test]
fn circles_are_found_without_their_dependents() {
    let edges = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("d", "e")];
    let mut graph = Graph::from_iter([("e".to_owned(), BTreeSet::new())]);
    for (from, to) in edges {
        graph.entry(from.to_owned()).or_default().insert(to.to_owned());
    }
    assert_eq!(circles(&graph).into_keys().collect::<Vec<_>>(), ["b", "c", "d"]);
}

// The papers.

/// Every file and folder below `folder`, but for what is built.
fn files_below(folder: &Path, into: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            into.push(format!("{}/", path.display()));
            files_below(&path, into);
        } else {
            into.push(path.display().to_string());
        }
    }
}

#[test]
fn files_named_in_architecture_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let mut files = Vec::new();
    for top in ["crates", "tests", "benches"] {
        files.push(format!("/{top}/"));
        files_below(&root.join(top), &mut files);
    }
    let is_path = |name: &&str| name.ends_with(".rs") || name.ends_with('/');
    let names: BTreeSet<&str> = text.split('`').skip(1).step_by(2).filter(is_path).collect();
    assert!(names.len() > 50, "{names:?}");
    let is_missing = |name: &&&str| !files.iter().any(|file| file.ends_with(&format!("/{name}")));
    let missing: Vec<_> = names.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The files that the walk through one acquire names.
fn walk(text: &str) -> BTreeSet<&str> {
    let (_, walk) = text.split_once("\n## One acquire, file by file\n").unwrap();
    let (walk, _) = walk.split_once("\n## ").unwrap();
    walk.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")).collect()
}

#[test]
fn walk_through_one_acquire_names_few_existing_files() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = std::fs::read_to_string(crates.join("../ARCHITECTURE.md")).unwrap();
    let is_in = |name: &str, part: &str| crates.join(part).join("src").join(name).is_file();
    let (core, ours): (Vec<_>, Vec<_>) =
        walk(&text).into_iter().partition(|name| name.starts_with("redis/"));
    for name in core {
        assert!(is_in(name, "redlock-core"), "{name}");
    }
    for name in &ours {
        let found = ["redlock-quorum", "redlock-protocol"].map(|part| is_in(name, part));
        assert!(found[0] != found[1], "{name} is in {found:?}");
    }
    // A longer list is not a walk, and the reader is better served by the map above.
    assert!((10..=20).contains(&ours.len()), "{}: {ours:?}", ours.len());
}
