//! The fault of a URL, found before the parser sees it.

use super::cut;

/// Returns the fault of a URL before the parser sees it, because the parser gives no reason and
/// ignores options that it does not know. The answer never quotes the URL.
pub(super) fn flaw(url: &str) -> Option<&'static str> {
    text_flaw(url).or_else(|| url_flaw(url))
}

/// Returns the fault of a text that is more than a URL, or none.
fn text_flaw(url: &str) -> Option<&'static str> {
    if url.is_empty() {
        Some("it is empty")
    } else if url.starts_with('\u{feff}') {
        Some("it begins with a byte-order mark: save the file as UTF-8 without one")
    } else if url.starts_with(['"', '\'']) {
        Some("it begins with a quotation mark: remove the quotation marks")
    } else if is_assignment(url) {
        Some(ASSIGNMENT)
    } else if begins_another(url) {
        Some(if url.contains(',') { SEVERAL } else { SEPARATOR })
    } else if let Some((_, rest)) = url.split_once(char::is_whitespace) {
        let is_comment = rest.trim_start().starts_with('#');
        Some(if is_comment { COMMENT } else { "there is a space in it" })
    } else {
        names_several(url).then_some(SEVERAL)
    }
}

fn url_flaw(url: &str) -> Option<&'static str> {
    let (head, fragment) = cut(url, '#');
    let (head, query) = cut(head, '?');
    let Some((scheme, rest)) = head.split_once("://").or_else(|| socket_with_one_slash(head))
    else {
        return Some("it has no scheme, such as redis://");
    };
    let is_unix = match scheme {
        "rediss" | "valkeys" if cfg!(not(feature = "tls")) => return Some(NO_TLS),
        "redis" | "rediss" | "valkey" | "valkeys" => false,
        "unix" | "redis+unix" | "valkey+unix" => true,
        _ => return Some("its scheme is not redis, rediss, valkey, valkeys or unix"),
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let place = match is_unix {
        true => socket_flaw(authority, path),
        false => network_flaw(url, authority, path),
    };
    place.or_else(|| query_flaw(query, is_unix)).or_else(|| fragment_flaw(fragment))
}

/// Splits `unix:/path`, which the parser accepts as well.
fn socket_with_one_slash(head: &str) -> Option<(&str, &str)> {
    head.split_once(':').filter(|(scheme, path)| *scheme == "unix" && path.starts_with('/'))
}

/// Returns the fault of the path of a socket. The parser takes the text before the third slash for
/// a host.
fn socket_flaw(authority: &str, path: &str) -> Option<&'static str> {
    let is_log_in = |part: &str| {
        let part = part.to_ascii_lowercase();
        part.contains('@') || part.find("%3a").is_some_and(|at| part[at..].contains("%40"))
    };
    if is_log_in(authority) || is_log_in(path) {
        Some(SOCKET_LOGIN)
    } else if !["", "localhost"].contains(&authority) {
        Some("the path of a socket begins after two slashes, as in unix:///run/redis.sock")
    } else {
        path.trim_matches('/').is_empty().then_some("it has no path, as in unix:///run/redis.sock")
    }
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

/// Returns the fault of user, password, host, port or database.
fn network_flaw(url: &str, authority: &str, path: &str) -> Option<&'static str> {
    let (log_in, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    // The parser ends the address at the first of these, wherever the `@` is.
    if url.matches('@').count() > authority.matches('@').count() {
        return Some(PUNCTUATION);
    }
    let db = path.trim_matches('/');
    if !is_utf8(log_in) {
        Some(NOT_UTF8)
    } else if !db.is_empty() && !is_database(db) {
        place_flaw(place)
            .or(Some("its database, after the /, is not a number from 0 to 2147483647"))
    } else {
        place_flaw(place)
    }
}

/// Returns the fault of host and port.
fn place_flaw(place: &str) -> Option<&'static str> {
    let (host, port) = match place.rsplit_once(':') {
        // The colons of an IPv6 address are inside brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (place, None),
    };
    if place.matches(':').count() > 1 && !place.starts_with('[') {
        Some("an IPv6 address is written in brackets, such as [::1]:6379")
    } else if host.starts_with('[') && host.contains('%') {
        Some("an IPv6 address with a zone is not supported: write the address without the %")
    } else if host.contains('%') {
        Some(ENCODED_HOST)
    } else if host.is_empty() {
        Some("it has no host")
    } else if port.is_some_and(|port| !is_port(port)) {
        Some("its port is not a number from 1 to 65535; a password would end with @")
    } else {
        let is_wildcard = ["0.0.0.0", "[::]"].contains(&host);
        is_wildcard.then_some("its host is a wildcard address; use the address of one machine")
    }
}

/// The parser of numbers accepts a sign as well, and the parser of URLs does not.
fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && matches!(text.parse::<u16>(), Ok(1..))
}

/// Servers read the number of a database as a signed one.
fn is_database(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<i32>().is_ok()
}

/// Returns `true` if a text is UTF-8 when its `%` codes are decoded.
fn is_utf8(encoded: &str) -> bool {
    let (mut decoded, mut rest) = (Vec::new(), encoded.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let digits =
            after.get(..2).filter(|_| byte == b'%').and_then(|two| str::from_utf8(two).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(code) => (decoded.push(code), rest = &after[2..]),
            None => (decoded.push(byte), rest = after),
        };
    }
    str::from_utf8(&decoded).is_ok()
}

fn query_flaw(query: Option<&str>, is_unix: bool) -> Option<&'static str> {
    let options: Vec<_> = query?.split('&').map(|option| cut(option, '=')).collect();
    let is_repeated = |place: usize| options[..place].iter().any(|it| it.0 == options[place].0);
    let flaw = options
        .iter()
        .find_map(|(name, value)| option_flaw(name, value.unwrap_or_default(), is_unix));
    let repeated = || (0..options.len()).any(is_repeated);
    flaw.or_else(|| repeated().then_some("an option after the ? is repeated; write each once"))
}

fn option_flaw(name: &str, value: &str, is_unix: bool) -> Option<&'static str> {
    match name {
        "protocol" => (!["2", "resp2", "3", "resp3"].contains(&value)).then_some(PROTOCOL),
        "db" if is_unix => {
            (!is_database(value)).then_some("its db is not a number from 0 to 2147483647")
        }
        "user" | "pass" if is_unix => (!is_utf8(value)).then_some(NOT_UTF8),
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
pub(super) const NO_PASSWORD: &str = "it has a user but no password; for a user with `nopass`, write any password, such as \
     redis://user:none@host; the : between them is not encoded";
const NOT_UTF8: &str = "its user or password, decoded, is not UTF-8: give \
                        the user another password";
const ENCODED_HOST: &str = "its host has a % in it; write the : and the @ around a password as they \
                            are, and encode only the user and the password";
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
pub(super) const UNREADABLE: &str =
    "its host is not a name or an address, or it is not encoded well";
