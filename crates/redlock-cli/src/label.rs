//! The label: who holds a lock, for people.

use anyhow::anyhow;
use redlock_quorum::Label;
use redlock_quorum::environment::LABEL;
use rustix::process::getuid;
use rustix::system::uname;

use crate::exit::Failure;
use crate::global::{Global, variable};

/// The label that was given, or `user@host:pid`.
///
/// # Errors
/// Wrong usage, when the label that was given cannot be part of a token. It is not made to fit:
/// that could name somebody else.
pub(crate) fn label(global: &Global) -> Result<String, Failure> {
    let given = global.label.as_deref().filter(|given| !given.is_empty());
    let Some(given) = given.map(|given| given.to_string_lossy()) else { return Ok(by_default()) };
    Label::parse(&given).map(|label| label.to_string()).map_err(|invalid| {
        let origin = global.origin(&LABEL);
        Failure::usage(anyhow!("{origin}: {invalid}; for example: {}", clean(&given, "")))
    })
}

fn by_default() -> String {
    clean(&format!("{}@{}", user(), uname().nodename().to_string_lossy()), &pid())
}

/// The name of the user, where the environment or the file of this machine's users has it. Others
/// are in a directory service, and one that hangs must not keep a lock from being acquired: they
/// are known by their number.
fn user() -> String {
    if let Some(name) = variable("LOGNAME").or_else(|| variable("USER")) {
        return name.to_string_lossy().into_owned();
    }
    let id = getuid().as_raw();
    let users = std::fs::read("/etc/passwd").unwrap_or_default();
    name_of(id, &String::from_utf8_lossy(&users)).unwrap_or_else(|| id.to_string())
}

/// The name of a user in a file of users, as passwd(5) has it.
fn name_of(id: u32, users: &str) -> Option<String> {
    users.lines().find_map(|user| {
        let mut fields = user.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}

fn pid() -> String {
    format!(":{}", std::process::id())
}

/// The label that is nearest to this text, which has a character at least. What is too long is cut,
/// and `end` is kept.
fn clean(text: &str, end: &str) -> String {
    let label = Label::nearest(text).map(|label| label.to_string()).unwrap_or_default();
    label.chars().take(Label::LEN_MAX - end.len()).chain(end.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Result<String, String> {
        let mut global = Global::default();
        global.label = Some(text.into());
        label(&global).map_err(|failure| failure.cause.to_string())
    }

    #[test]
    fn a_label_that_no_token_can_have_is_refused_with_one_that_fits() {
        let longest = "x".repeat(Label::LEN_MAX);
        assert_eq!(given(&longest), Ok(longest.clone()));
        assert_eq!(given("ann@web-1:4711_a.B"), Ok("ann@web-1:4711_a.B".into()));
        let refused = given("deploy by J\u{fc}rgen/1").unwrap_err();
        assert!(refused.starts_with("--label: the label \"deploy by J"), "{refused}");
        let fix = "1 to 64 of A-Z a-z 0-9 . _ @ : -; for example: deploy-by-J-rgen-1";
        assert!(refused.ends_with(fix), "{refused}");
        let refused = given(&format!("{longest}x")).unwrap_err();
        assert!(refused.ends_with(&format!("for example: {longest}")), "{refused}");
    }

    #[test]
    fn a_user_is_known_by_the_file_of_users() {
        let users = "root:x:0:0:root:/root:/bin/sh\n\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_of(1000, users).as_deref(), Some("ann"));
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(100, users), None);
        assert_eq!(name_of(0, ":x:0:0:::"), None);
    }

    #[test]
    fn the_default_names_user_host_and_process() {
        let label = by_default();
        assert_eq!(given(""), Ok(label.clone()));
        assert!(label.contains('@') && label.ends_with(&pid()), "{label}");
        let long = clean(&"h".repeat(99), ":4711");
        assert!(long.len() == Label::LEN_MAX && long.ends_with("h:4711"), "{long}");
    }
}
