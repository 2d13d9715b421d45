//! The address of a master, and how to log in to it.

mod flaw;
mod redacted;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

use crate::printable;
use flaw::{NO_PASSWORD, UNREADABLE, flaw};
pub use redacted::redacted;

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

/// Splits `text` at the first `mark`.
fn cut(text: &str, mark: char) -> (&str, Option<&str>) {
    text.split_once(mark).map_or((text, None), |(head, tail)| (head, Some(tail)))
}

fn tcp(host: &str, port: u16, tls: bool) -> Place {
    Place::Tcp { host: host.to_ascii_lowercase(), port, tls }
}

impl Login {
    fn of(info: &RedisConnectionInfo) -> Self {
        // An unset variable leaves an empty text, which no form of URL treats as a log-in.
        let given = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let (username, password) = (given(info.username()), given(info.password()));
        Self { username, password, db: info.db() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Unix(path) => f.write_str(&printable::visible(&path.display().to_string())),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("place", &self.place).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
