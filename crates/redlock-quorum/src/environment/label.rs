//! The default label: `user@host:pid`, which shows operators who holds a lock.

use redlock_core::Label;
use rustix::process::getuid;
use rustix::system::uname;

use crate::environment::Environment;

/// Makes the label `user@host:pid` of this process.
///
/// `None` cannot happen, as the text always has a character that a label can have. A label is never
/// a reason to fail.
pub(crate) fn of_process() -> Option<Label> {
    let user = user(&Environment::of_process());
    let host = uname().nodename().to_string_lossy().into_owned();
    nearest(&format!("{user}@{host}"), &format!(":{}", std::process::id()))
}

/// Returns the name of the user from the environment, or from the file of this machine's users.
/// Other users are in a directory service, which can hang and must not delay a lock, so their label
/// has their number instead.
fn user(environment: &Environment<'_>) -> String {
    if let Some(name) = environment.get("LOGNAME").or_else(|| environment.get("USER")) {
        return name.to_string_lossy().into_owned();
    }
    let id = getuid().as_raw();
    let users = std::fs::read("/etc/passwd").unwrap_or_default();
    name_of(id, &String::from_utf8_lossy(&users)).unwrap_or_else(|| id.to_string())
}

/// Returns the name of a user in a file of users, in the format of passwd(5).
fn name_of(id: u32, users: &str) -> Option<String> {
    users.lines().find_map(|user| {
        let mut fields = user.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}

/// Returns the label nearest to this text. A long text is cut, and `end` is kept.
fn nearest(text: &str, end: &str) -> Option<Label> {
    let label = Label::nearest(text).ok()?;
    let kept = label.as_str().chars().take(Label::LEN_MAX - end.len());
    Label::parse(&kept.chain(end.chars()).collect::<String>()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_name_is_read_from_the_passwd_file() {
        let users = "root:x:0:0:root:/root:/bin/sh\n\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_of(1000, users).as_deref(), Some("ann"));
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(100, users), None);
        assert_eq!(name_of(0, ":x:0:0:::"), None);
        assert_eq!(name_of(0, ""), None);
    }

    #[test]
    fn user_is_named_by_the_environment_first() {
        let named = |variables: &'static [(&str, &str)]| {
            let value = |name: &str| variables.iter().find(|(known, _)| *known == name);
            user(&Environment::of(&|name| value(name).map(|(_, value)| value.into())))
        };
        assert_eq!(named(&[("LOGNAME", "ann"), ("USER", "bob")]), "ann");
        assert_eq!(named(&[("LOGNAME", ""), ("USER", "bob")]), "bob");
        assert!(!named(&[]).is_empty());
    }

    #[test]
    fn default_names_user_host_and_process() {
        let label = of_process().unwrap().to_string();
        assert!(label.contains('@') && label.ends_with(&format!(":{}", std::process::id())));
        let long = nearest(&"h".repeat(99), ":4711").unwrap().to_string();
        assert!(long.len() == Label::LEN_MAX && long.ends_with("h:4711"), "{long}");
        assert_eq!(nearest("J\u{fc}rgen M@web 1", ":7").unwrap().as_str(), "J-rgen-M@web-1:7");
    }
}
