//! URLs without their secrets.

use std::net::IpAddr;

use super::cut;

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
        _ if query.contains('@') || has_encoded_log_in(head, is_socket) => format!("{scheme}***"),
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

/// Returns `true` if the `:` or `@` of a log-in may be encoded, so that it looks like a host. Only a
/// path, which begins with a slash, has other uses for a `%`.
fn has_encoded_log_in(head: &str, is_socket: bool) -> bool {
    let place = head.rsplit('@').next().unwrap_or_default();
    let is_path = is_socket && place.trim_start_matches("unix:").starts_with('/');
    let encoded = place.to_ascii_lowercase();
    match encoded.find("%3a") {
        Some(at) if is_path => encoded[at..].contains("%40"),
        _ => !is_path && place.contains('%'),
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
