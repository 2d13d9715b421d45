//! `redlock acl`: the user that masters need, as a command for each server version, and whether the
//! user of the URLs has its rights.

use std::collections::BTreeMap;

use anyhow::anyhow;
use futures::future::join_all;
use redis::Value;
use redlock_quorum::commands::{EXTRAS, Extra, SELECT, SENT, Uses};
use redlock_quorum::environment::redacted;
use redlock_quorum::server_error::ServerError;
use redlock_quorum::{Cause, Facts, ServerReport, printable};

use crate::answers;
use crate::args;
use crate::direct::{self, Direct, PATIENCE};
use crate::exit::{Failure, MISSING, UNAVAILABLE};
use crate::global::Global;
use crate::keys::Keys;
use crate::masters::{self, Masters};
use crate::output;
use crate::rights::{self, Tried};
use crate::session::EXAMINE;
use crate::stderr;

pub(crate) async fn acl(global: &Global, args: &args::Acl) -> Result<u8, Failure> {
    let masters = Masters::new(global)?;
    // It finds bad settings, and connects nothing.
    masters::traced(masters.builder().prefix(masters::prefix(global)), global).build()?;
    if args.check { check(global, &masters).await } else { print(global, &masters).await }
}

/// Facts about a server on which the rights of a user depend.
struct Server {
    /// The kind and the version of the server.
    version: String,
    /// `true` if the server knows rights to channels.
    has_channels: bool,
    /// A new user has the right to all channels. Such a server rejects a pattern for channels.
    allows_channels: bool,
    /// `true` if the server knows rights at all.
    has_rights: bool,
    extras: Vec<&'static Extra>,
    /// The URL has a database other than 0.
    selects: bool,
}

impl Server {
    async fn of(master: &mut Direct) -> Result<Self, Cause> {
        let info = master.info("server").await?;
        let text = |name: &str| info.get::<String>(name).map(|text| printable::line(&text));
        if text("redis_mode").is_some_and(|mode| mode == "sentinel") {
            return Err(Cause::Unusable(Facts::SENTINEL.into()));
        }
        let redis = text("redis_version").unwrap_or_default();
        let version = match text("valkey_version") {
            Some(valkey) => format!("Valkey {valkey}"),
            None => format!("Redis {redis}"),
        };
        let at_least = |least: (u32, u32)| number(&redis) >= least;
        Ok(Self {
            version,
            has_channels: at_least((6, 2)),
            allows_channels: match master.setting("acl-pubsub-default").await {
                Ok(Some(default)) => default == "allchannels",
                // The user has no right to read it. Before 7.0, all channels are the default.
                _ => !at_least((7, 0)),
            },
            has_rights: at_least((6, 0)),
            extras: extras(master).await?,
            selects: master.database() != 0,
        })
    }

    /// Returns the facts of a new server, for when no server can be reached.
    fn newest() -> Self {
        Self {
            version: "the newest version".into(),
            has_channels: true,
            allows_channels: false,
            has_rights: true,
            // Redis and Valkey have different commands beyond this one.
            extras: EXTRAS.iter().filter(|extra| extra.command == "client|setinfo").collect(),
            selects: false,
        }
    }

    /// The command that makes the user.
    fn line(&self, prefix: &[u8], uses: Uses) -> String {
        let keys = Keys::of(prefix, &ServerReport::default());
        let mut line = format!("ACL SETUSER redlock on >PASSWORD ~{}*", pattern(prefix));
        if self.has_channels && uses.queues {
            let reset = if self.allows_channels { " resetchannels" } else { "" };
            line += &format!("{reset} &{}*", pattern(&keys.channels));
        }
        let needed = SENT.iter().filter(|sent| uses.needs(sent)).map(|sent| sent.right);
        let selects = self.selects.then_some(SELECT);
        let extras = self.extras.iter().flat_map(|extra| extra.rights).copied();
        for right in needed.chain(selects).chain(extras) {
            line += &format!(" {right}");
        }
        line
    }
}

/// The major and the minor version.
fn number(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or_default());
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// Returns the optional commands that this server has. If the server does not list its commands,
/// the line contains none of them, because it would reject a line with an unknown command.
async fn extras(master: &mut Direct) -> Result<Vec<&'static Extra>, Cause> {
    let mut ask = vec![&b"COMMAND"[..], b"INFO"];
    ask.extend(EXTRAS.iter().map(|extra| extra.command.as_bytes()));
    let known = match master.probe(&[ask]).await?.pop() {
        Some(Value::Array(known)) => known,
        _ => Vec::new(),
    };
    let has = |about: &Value| matches!(about, Value::Array(about) if !about.is_empty());
    Ok(EXTRAS.iter().zip(&known).filter(|(_, about)| has(about)).map(|(extra, _)| extra).collect())
}

/// Returns a pattern that matches these bytes. Bytes that cannot occur in a pattern or in a line
/// for `redis-cli` become `?`, which matches any byte.
fn pattern(bytes: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        b'*' | b'?' | b'[' | b']' | b'\\' => format!("\\{}", char::from(*byte)),
        b'"' | b'\'' => "?".into(),
        byte if byte.is_ascii_graphic() => char::from(*byte).into(),
        _ => "?".into(),
    };
    bytes.iter().map(one).collect()
}

async fn print(global: &Global, masters: &Masters) -> Result<u8, Failure> {
    let (prefix, uses) = (masters::prefix(global), masters::uses(global));
    let of_one =
        async |master: &mut Direct| Ok((master.name().to_owned(), Server::of(master).await?));
    let all = masters.urls().map(|url| direct::ask(masters, url, PATIENCE, of_one));
    let mut versions: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut unexamined = Vec::new();
    for (url, asked) in masters.urls().zip(join_all(all).await) {
        match asked {
            Ok((name, server)) if !server.has_rights => {
                let version = server.version;
                stderr::note(&format!(
                    "{name} is {version}, which has no ACL: use requirepass, or upgrade it"
                ));
            }
            Ok((name, server)) => {
                let line = server.line(prefix, uses);
                versions.entry((server.version, line)).or_default().push(name);
            }
            Err(why) => unexamined.push((redacted(url), why.to_string())),
        }
    }
    for said in lines(&unexamined, masters, " could not be examined: ") {
        stderr::note(&said);
    }
    if versions.is_empty() {
        let newest = Server::newest();
        versions.insert((newest.version.clone(), newest.line(prefix, uses)), Vec::new());
    }
    for (number, ((version, line), names)) in (1..).zip(versions) {
        let of = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
        stderr::note(&format!("line {number} is for {version}{of}"));
        output::line(&line)?;
    }
    stderr::note("replace PASSWORD, and run ACL SAVE or CONFIG REWRITE afterwards");
    Ok(0)
}

/// The result for one master.
enum Checked {
    /// Its user, and the rights that the user lacks.
    Lacks(String, Vec<String>),
    Unexamined(Cause),
}

async fn check(global: &Global, masters: &Masters) -> Result<u8, Failure> {
    let (prefix, uses) = (masters::prefix(global), masters::uses(global));
    let keys = Keys::of(prefix, &ServerReport::default());
    let of_one = async |master: &mut Direct| {
        let tried = rights::all_tried(master, &keys, uses).await?;
        if tried.stores_no_keys() {
            return Err(Cause::Unusable(Facts::SENTINEL.into()));
        }
        Ok((master.name().to_owned(), master.user().to_owned(), lacks(tried)))
    };
    let all = masters.urls().map(|url| direct::ask(masters, url, PATIENCE, of_one));
    let (mut complete, mut missing, mut unexamined) = (Vec::new(), Vec::new(), Vec::new());
    for (url, asked) in masters.urls().zip(join_all(all).await) {
        let (name, checked) = match asked {
            Ok((name, user, lacks)) => (name, Checked::Lacks(user, lacks)),
            Err(cause) => (redacted(url), of_log_in(cause)),
        };
        match checked {
            Checked::Lacks(user, lacks) if lacks.is_empty() => {
                complete.push((name, format!("user {user} has all rights")));
            }
            Checked::Lacks(user, lacks) => {
                missing.push((name, format!("user {user} lacks {}", lacks.join(" "))));
            }
            Checked::Unexamined(why) => unexamined.push((name, why.to_string())),
        }
    }
    let (complete, missing) = (lines(&complete, masters, ": "), lines(&missing, masters, ": "));
    for line in complete.iter().chain(&missing) {
        output::line(line)?;
    }
    let code = if unexamined.is_empty() { MISSING } else { UNAVAILABLE };
    let step = if missing.is_empty() { EXAMINE } else { "`redlock acl` prints the rights" };
    let unexamined = lines(&unexamined, masters, " could not be examined: ");
    let said: Vec<String> = unexamined.into_iter().chain(missing).collect();
    match said.is_empty() {
        true => Ok(0),
        false => Err(Failure::new(code, anyhow!("{}; {step}", said.join("; ")))),
    }
}

/// Returns a line for each different answer, with its masters in front.
fn lines(said: &[(String, String)], masters: &Masters, between: &str) -> Vec<String> {
    let said: Vec<_> = said.iter().map(|(who, words)| (&**who, words.clone())).collect();
    let line = |(who, words): (String, &str)| format!("{who}{between}{words}");
    answers::grouped(&said, masters.len()).into_iter().map(line).collect()
}

/// A log-in is a password, and a database that the user must be allowed to select.
fn of_log_in(cause: Cause) -> Checked {
    match &cause {
        Cause::ErrorReply(text) if ServerError::of(text) == ServerError::Denied => {
            Checked::Lacks("of the URL".into(), vec![SELECT.into()])
        }
        _ => Checked::Unexamined(cause),
    }
}

/// Returns the missing rights, and the failures that no right can fix.
fn lacks(tried: Tried) -> Vec<String> {
    let absent =
        |name: String| format!("{} (absent: renamed, or too old)", rights::right_of(&name));
    let missing = tried.missing.into_iter().chain(tried.narrow);
    missing.chain(tried.unknown.into_iter().map(absent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_in_an_acl_prefix_are_escaped() {
        assert_eq!(pattern(b"a*[b]?\\:"), "a\\*\\[b\\]\\?\\\\:");
        assert_eq!(pattern(b"a b\"\n\xff"), "a?b???");
    }

    #[test]
    fn acl_line_has_only_commands_that_the_server_knows() {
        let old = Server { has_channels: false, extras: Vec::new(), ..Server::newest() };
        let line = old.line(b"p:", Uses::default());
        let begin = "ACL SETUSER redlock on >PASSWORD ~p:* +set +get ";
        assert!(line.starts_with(begin) && !line.contains('&'), "{line}");
        assert!(!line.contains("setinfo") && !line.contains("+select"), "{line}");
        let all = Server { allows_channels: true, ..Server::newest() }.line(b"p:", Uses::default());
        assert!(all.contains(" ~p:* resetchannels &p:redlock-quorum:1:go:* +set "), "{all}");
        let new = Server { selects: true, ..Server::newest() }.line(b"p:", Uses::default());
        let begin = "ACL SETUSER redlock on >PASSWORD ~p:* &p:redlock-quorum:1:go:* +set ";
        assert!(new.starts_with(begin) && new.ends_with(" +select +client|setinfo"), "{new}");
    }

    #[test]
    fn version_has_two_numbers() {
        assert!(number("7.0.15") >= (6, 2) && number("6.0.16") < (6, 2));
        assert_eq!(number("unstable"), (0, 0));
    }
}
