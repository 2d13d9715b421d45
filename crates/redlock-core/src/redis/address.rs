//! Where a master is, and how to log in to it.

use std::fmt;
use std::path::PathBuf;

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

/// What a URL says about a master. `Debug` never shows user or password.
pub(super) struct Address {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) login: Login,
}

/// Where the server listens.
#[derive(Debug)]
pub(super) enum Place {
    Tcp { host: String, port: u16, tls: bool },
    Unix(PathBuf),
}

/// What is sent before anything else.
#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: i64,
}

/// Why a text is not the URL of a master. `Display` never shows user or password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{url:?} is not the URL of a Redis master: {why}; write redis://[user:password@]host[:port][/db], \
     rediss://... for TLS, or unix:///path/to/socket"
)]
pub struct InvalidUrl {
    url: String,
    why: String,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, InvalidUrl> {
        let invalid = |why: &str| InvalidUrl { url: redact(url), why: why.to_owned() };
        let info = url.into_connection_info().map_err(|error| {
            invalid(error.detail().map_or("it does not parse", |_| "a part of it is malformed"))
        })?;
        let place = match info.addr() {
            ConnectionAddr::Tcp(host, port) => tcp(host, *port, false),
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(invalid("#insecure is not supported: name the CA instead"));
            }
            ConnectionAddr::TcpTls { host, port, .. } => tcp(host, *port, true),
            ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
            _ => return Err(invalid("this kind of address is not supported")),
        };
        let login = Login::of(info.redis_settings());
        if login.username.is_some() && login.password.is_none() {
            return Err(invalid("it has a user but no password"));
        }
        Ok(Self { name: place.to_string(), place, login })
    }
}

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

/// The URL without what may be secret: everything up to the last `@`, and the query. Where a `?`
/// comes before that `@`, it is unknown whether it is part of a password or begins a query.
fn redact(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    let (head, query) = rest.split_once('?').unwrap_or((rest, ""));
    match head.rsplit_once('@') {
        _ if query.contains('@') => format!("{scheme}***"),
        Some((_, place)) => format!("{scheme}***@{place}"),
        None if has_port_only(head) => format!("{scheme}{head}"),
        None => format!("{scheme}***"),
    }
}

/// Whether what follows the first colon can be no password whose `@` was forgotten.
fn has_port_only(place: &str) -> bool {
    let authority = place.split('/').next().unwrap_or_default();
    let after_host = authority.rsplit(']').next().unwrap_or_default();
    after_host.split_once(':').is_none_or(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_address_without_user_password_and_database() {
        for (url, name) in [
            ("redis://10.0.0.1", "10.0.0.1:6379"),
            ("redis://me:secret@Host.example:7001/3", "host.example:7001"),
            ("rediss://:secret@host:1", "host:1"),
            ("redis://[::1]:7001", "[::1]:7001"),
            ("unix:///run/redis.sock?db=2&pass=secret", "/run/redis.sock"),
            ("valkey://h:2", "h:2"),
        ] {
            assert_eq!(Address::parse(url).unwrap().name, name);
        }
    }

    #[test]
    fn the_login_is_decoded() {
        let login = Address::parse("redis://me:p%40ss@h:1/5").unwrap().login;
        assert_eq!(login.username.as_deref(), Some("me"));
        assert_eq!(login.password.as_deref(), Some("p@ss"));
        assert_eq!(login.db, 5);
    }

    #[test]
    fn malformed_urls_are_refused_with_the_form_they_should_have() {
        for url in [
            "",
            "10.0.0.1:6379",
            "http://h:1",
            "redis://",
            "redis://h:99999",
            "redis://h/x",
            "rediss://h#insecure",
            "redis://0.0.0.0",
            "redis://me@h",
        ] {
            let refused = Address::parse(url).map(|address| address.name).unwrap_err().to_string();
            assert!(refused.contains("redis://[user:password@]host"), "{url}: {refused}");
        }
    }

    #[test]
    fn secrets_are_in_no_error_and_no_debug() {
        for url in [
            "redis://me:sesame@h:99999",
            "me:sesame@h",
            "redis://:ses@me:sesame@h/x",
            "unix:sesame@/x?pass=sesame",
            "http://h/?password=sesame",
            "redis://:sesame",
            "redis://me:sesame/0",
        ] {
            let refused = Address::parse(url).unwrap_err();
            assert!(!format!("{refused} {refused:?}").contains("sesame"), "{refused}");
        }
        let address = Address::parse("redis://sesame:sesame@h").unwrap();
        assert!(!format!("{address:?}").contains("sesame"));
    }
}
