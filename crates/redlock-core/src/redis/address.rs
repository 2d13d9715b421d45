//! The address of a master, and how to log in to it.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

/// The contents of a master's URL. `Debug` never shows user or password.
pub(super) struct Address {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) login: Login,
}

/// The address that the server listens on.
#[derive(Debug)]
pub(super) enum Place {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

impl Place {
    pub(super) fn is_plain_tcp(&self) -> bool {
        matches!(self, Self::Tcp { tls: false, .. })
    }
}

/// The login and options of a connection, which are sent before anything else.
#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: i64,
}

/// Why a text is not the URL of a master. `Display` never shows user or password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{url:?} is not the URL of a Redis master: {why}; write \
     redis://[user:password@]host[:port][/db], rediss://... for TLS, or unix:///path/to/socket"
)]
pub struct InvalidUrl {
    url: String,
    why: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let invalid = |why: &str| InvalidUrl { url: redacted(url), why: why.to_owned() };
        if let Some(why) = flaw(url.trim()) {
            return Err(invalid(why));
        }
        let info = literal_url(url).into_connection_info().map_err(|_| invalid(UNREADABLE))?;
        let place = match info.addr() {
            ConnectionAddr::Tcp(host, port) => tcp(host, *port, false),
            ConnectionAddr::TcpTls { host, port, .. } => tcp(host, *port, true),
            ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
            _ => return Err(invalid("this kind of address is not supported")),
        };
        let login = Login::of(info.redis_settings());
        if login.username.is_some() && login.password.is_none() {
            return Err(invalid(NO_PASSWORD));
        }
        Ok(Self { name: place.to_string(), place, login })
    }
}

/// Escapes each `+` in the query of a URL, so that it stays a `+`.
///
/// The `redis` crate decodes it to a space there, as in the form of a web page, and nowhere else.
fn literal_url(url: &str) -> Cow<'_, str> {
    match cut(url, '?') {
        (head, Some(query)) if query.contains('+') => {
            format!("{head}?{}", query.replace('+', "%2B")).into()
        }
        _ => url.into(),
    }
}

/// Returns the fault of a URL before the parser sees it, because the parser gives no reason and
/// ignores options that it does not know. The answer never quotes the URL.
fn flaw(url: &str) -> Option<&'static str> {
    if url.is_empty() {
        return Some("it is empty");
    }
    if url.starts_with('\u{feff}') {
        return Some("it begins with a byte-order mark: save the file as UTF-8 without one");
    }
    if url.starts_with(['"', '\'']) {
        return Some("it begins with a quotation mark: remove the quotation marks");
    }
    if is_assignment(url) {
        return Some(ASSIGNMENT);
    }
    if begins_another(url) {
        return Some(if url.contains(',') { SEVERAL } else { SEPARATOR });
    }
    if let Some((_, rest)) = url.split_once(char::is_whitespace) {
        let is_comment = rest.trim_start().starts_with('#');
        return Some(if is_comment { COMMENT } else { "there is a space in it" });
    }
    if names_several(url) {
        return Some(SEVERAL);
    }
    let (head, fragment) = cut(url, '#');
    let (head, query) = cut(head, '?');
    let Some((scheme, rest)) = head.split_once("://") else {
        return match head.strip_prefix("unix:/") {
            None => Some("it has no scheme, such as redis://"),
            Some(path) => path.contains('@').then_some(SOCKET_LOGIN),
        };
    };
    let is_unix = match scheme {
        "rediss" | "valkeys" if cfg!(not(feature = "tls")) => return Some(NO_TLS),
        "redis" | "rediss" | "valkey" | "valkeys" => false,
        "unix" | "redis+unix" | "valkey+unix" => true,
        _ => return Some("its scheme is not redis, rediss, valkey, valkeys or unix"),
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let place = match is_unix {
        true => [authority, path].iter().any(|part| part.contains('@')).then_some(SOCKET_LOGIN),
        false => network_flaw(url, authority, path),
    };
    place.or_else(|| query_flaw(query, is_unix)).or_else(|| fragment_flaw(fragment))
}

/// Returns `true` for a line of a shell script or of a configuration file.
fn is_assignment(url: &str) -> bool {
    let name = url.strip_prefix("export ").unwrap_or(url).split_once('=').map(|(name, _)| name);
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(is_of_name))
}

/// Returns `true` for several masters separated by commas. In a password, and in the path of a
/// socket, a comma is an ordinary character.
fn names_several(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return !url.starts_with("unix:") && url.contains(',');
    };
    let place = match rest.split_once(',') {
        Some((_, next)) if next.contains("://") => return true,
        _ => rest.rsplit_once('@').map_or(rest, |(_, place)| place),
    };
    !scheme.contains("unix") && place.split(['?', '#']).next().is_some_and(|at| at.contains(','))
}

/// Returns `true` if a second URL follows, after whatever separator.
fn begins_another(url: &str) -> bool {
    let ends_with_scheme = |text: &str| SCHEMES.iter().any(|scheme| text.ends_with(scheme));
    url.match_indices("://").skip(1).any(|(at, _)| ends_with_scheme(&url[..at]))
}

/// Splits `text` at the first `mark`.
fn cut(text: &str, mark: char) -> (&str, Option<&str>) {
    text.split_once(mark).map_or((text, None), |(head, tail)| (head, Some(tail)))
}

/// Returns the fault of user, password, host, port or database.
fn network_flaw(url: &str, authority: &str, path: &str) -> Option<&'static str> {
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    // The parser ends the address at the first of these, wherever the `@` is.
    if url.matches('@').count() > authority.matches('@').count() {
        return Some(PUNCTUATION);
    }
    let (host, port) = match place.rsplit_once(':') {
        // The colons of an IPv6 address are inside brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (place, None),
    };
    let db = path.trim_matches('/');
    if place.matches(':').count() > 1 && !place.starts_with('[') {
        Some("an IPv6 address is written in brackets, such as [::1]:6379")
    } else if host.starts_with('[') && host.contains('%') {
        Some("an IPv6 address with a zone is not supported: write the address without the %")
    } else if host.is_empty() {
        Some("it has no host")
    } else if port.is_some_and(|port| !matches!(port.parse::<u16>(), Ok(1..))) {
        Some("its port is not a number from 1 to 65535; a password would end with @")
    } else if ["0.0.0.0", "[::]"].contains(&host) {
        Some("its host is a wildcard address; use the address of one machine")
    } else if !db.is_empty() && db.parse::<u32>().is_err() {
        Some("its database, after the /, is not a number")
    } else {
        None
    }
}

fn query_flaw(query: Option<&str>, is_unix: bool) -> Option<&'static str> {
    query?.split('&').find_map(|option| option_flaw(option, is_unix))
}

fn option_flaw(option: &str, is_unix: bool) -> Option<&'static str> {
    let (name, value) = cut(option, '=');
    let value = value.unwrap_or_default();
    match name {
        "protocol" => (!["2", "resp2", "3", "resp3"].contains(&value)).then_some(PROTOCOL),
        "db" if is_unix => value.parse::<u32>().is_err().then_some("its db is not a number"),
        "user" | "pass" if is_unix => None,
        _ if is_unix => {
            Some("unknown option after the ?; db, user, pass and protocol are supported")
        }
        _ => Some(
            "unknown option after the ?; only protocol is supported, the database is written /5",
        ),
    }
}

fn fragment_flaw(fragment: Option<&str>) -> Option<&'static str> {
    match fragment? {
        "insecure" => Some("#insecure is not supported: set the CA instead"),
        _ => Some("fragments (#) are not supported; in a password, write # as %23"),
    }
}

const SOCKET_LOGIN: &str = "in the URL of a socket, write user and password as \
                            ?user=USER&pass=PASSWORD, and an @ of the path as %40";
const NO_PASSWORD: &str = "it has a user but no password; for a user with `nopass`, write any \
                           password, such as redis://user:none@host";
const NO_TLS: &str =
    "this program was built without TLS: build it with the feature `tls`, or write redis://";
/// Schemes of URLs, each as the end of the text before its `://`.
const SCHEMES: &[&str] = &["redis", "rediss", "valkey", "valkeys", "unix"];
const PROTOCOL: &str = "its protocol is not resp2 or resp3";
const SEPARATOR: &str = "it contains several URLs: separate them with commas";
const SEVERAL: &str = "--node accepts one URL; repeat --node, or use REDLOCK_NODES=URL,URL";
const ASSIGNMENT: &str = "it begins with NAME=: write only the URL, without quotation marks";
const COMMENT: &str = "a comment after it is not supported; write it on a separate line";
const PUNCTUATION: &str = "in a user or password, write / as %2F, ? as %3F, # as %23 and @ as %40";
/// The faults that only the parser finds.
const UNREADABLE: &str = "its host is not a name or an address, or it is not encoded well";

fn tcp(host: &str, port: u16, tls: bool) -> Place {
    Place::Tcp { host: host.to_ascii_lowercase(), port, tls }
}

impl Login {
    fn of(info: &RedisConnectionInfo) -> Self {
        let owned = |text: &str| text.to_owned();
        let (username, password) = (info.username().map(owned), info.password().map(owned));
        Self { username, password, db: info.db() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Returns the URL without parts that could be secret: everything up to the last `@`, and the
/// query. If a `?` precedes that `@`, it could be part of a password or begin a query, so
/// everything after the scheme is hidden.
pub fn redacted(url: &str) -> String {
    let is_scheme = |text: &str| text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'+');
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), url),
    };
    let (head, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_socket = scheme.contains("unix") || url.starts_with("unix:");
    match head.rsplit_once('@') {
        _ if query.contains('@') => format!("{scheme}***"),
        Some((_, place)) if is_socket || has_path_only(place) => {
            format!("{scheme}***@{}", shown(place))
        }
        None if scheme.is_empty() && !is_socket && !is_place(head) => "***".into(),
        None if has_port_only(head) && (is_socket || has_path_only(head)) => {
            format!("{scheme}{}", shown(head))
        }
        _ => format!("{scheme}***"),
    }
}

/// Returns `true` if a text without a scheme is clearly the address of a server. Any other text could
/// be a password, such as the contents of a file that was confused with the list.
fn is_place(text: &str) -> bool {
    let text = text.split(char::is_whitespace).next().unwrap_or_default();
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    text.parse::<IpAddr>().is_ok()
        || text.find(':').is_some_and(|at| at > 0) && text.bytes().all(is_of_host)
}

/// Returns the host, port and path. Text after a space or a `#` could be anything and is hidden.
fn shown(place: &str) -> String {
    let end = place.find(|c: char| c.is_whitespace() || c == '#');
    end.map_or_else(|| place.to_owned(), |end| format!("{} ***", &place[..end]))
}

/// Returns `true` if the text after the first colon is the port of a host, and cannot be a password
/// with a missing `@`. A password of digits only can still look like a port.
fn has_port_only(place: &str) -> bool {
    let authority = place.split('/').next().unwrap_or_default();
    let after_host = authority.rsplit(']').next().unwrap_or_default();
    let is_port = |port: &str| port.len() <= 5 && port.parse::<u16>().is_ok();
    let has_host = !authority.starts_with(':');
    has_host && after_host.split_once(':').is_none_or(|(_, port)| is_port(port))
}

/// Returns `true` if the text after the host is a database number, and not part of a password.
fn has_path_only(place: &str) -> bool {
    let end = place.find(|c: char| c.is_whitespace() || c == '#').unwrap_or(place.len());
    let path = cut(&place[..end], '/').1.unwrap_or_default();
    path.len() <= 3 && path.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests;
