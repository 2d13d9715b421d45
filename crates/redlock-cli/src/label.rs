//! The label: who holds a lock, for people.

use std::ffi::OsStr;

use rustix::process::getuid;
use rustix::system::uname;

use crate::global::variable;

/// The label that was given, or `user@host:pid`.
pub(crate) fn label(given: Option<&OsStr>) -> String {
    match given {
        Some(given) if !given.is_empty() => clean(&given.to_string_lossy(), ""),
        _ => clean(&format!("{}@{}", user(), uname().nodename().to_string_lossy()), &pid()),
    }
}

/// The name of the user, where the environment has it: a directory service that hangs must not
/// keep a lock from being acquired.
fn user() -> String {
    let name = variable("LOGNAME").or_else(|| variable("USER"));
    name.map_or_else(|| getuid().as_raw().to_string(), |name| name.to_string_lossy().into_owned())
}

fn pid() -> String {
    format!(":{}", std::process::id())
}

/// What a label can't have becomes `-`. What is too long is cut, and `end` is kept.
fn clean(text: &str, end: &str) -> String {
    let one = |c: char| if c.is_ascii_alphanumeric() || "._@:-".contains(c) { c } else { '-' };
    let start: String = text.chars().map(one).take(LEN_MAX - end.len()).collect();
    start + end
}

/// The library's limit.
const LEN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_what_a_token_may_have_and_no_more() {
        assert_eq!(label(Some("deploy by J\u{fc}rgen/1".as_ref())), "deploy-by-J-rgen-1");
        assert_eq!(label(Some("x".repeat(99).as_ref())).len(), LEN_MAX);
    }

    #[test]
    fn the_default_names_user_host_and_process() {
        let label = label(None);
        assert!(label.contains('@') && label.ends_with(&pid()), "{label}");
        let long = clean(&"h".repeat(99), ":4711");
        assert!(long.len() == LEN_MAX && long.ends_with("h:4711"), "{long}");
    }
}
