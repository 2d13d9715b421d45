//! `Cause`: why an answer is unknown.

use std::borrow::Cow;
use std::fmt;

use crate::NotAdmitted;
use crate::server_error::ServerError;

/// The reason why an answer is unknown, in the words that errors and the command use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// No answer within the node timeout. The request may still be carried out.
    TimedOut,
    /// No server listens at the address.
    ConnectionRefused,
    /// The connection broke, with the request on its way.
    ConnectionClosed,
    /// There is no connection, for the reason given.
    NotConnected(NoConnection),
    /// There is no connection, because the server at the address cannot be used as a master: it
    /// isn't a Redis server, or its certificate is not trusted.
    Unusable(NoConnection),
    /// There is a connection, and the request was not sent over it, for the reason given.
    NotSent(Cow<'static, str>),
    /// The master answered with an error and did not do what the request wanted.
    ErrorReply(String),
    /// The server answered that it is no longer a master: `READONLY`, `MASTERDOWN`. Old servers
    /// wrap these into the error of a script.
    Demoted(String),
    /// The master does not vote: it is a replica or a cluster node, or it is not admitted. It may
    /// still have carried out the request.
    NotAdmitted(Box<NotAdmitted>),
    /// The address leads to the server of the master named here, which is already in the list.
    TwinOf(String),
}

impl Cause {
    /// Returns the cause for the text of an error reply, including its code.
    pub fn of_error_reply(text: String) -> Self {
        match ServerError::of(&text) {
            ServerError::Demoted => Self::Demoted(text),
            _ => Self::ErrorReply(text),
        }
    }

    /// Returns `true` if waiting may help. Waiting helps against silence, a server that loads its
    /// data, or full memory. It does not help against a wrong password, missing rights, a server
    /// that isn't an independent master, or a duplicate address, which need a change by an
    /// operator.
    pub fn is_curable(&self) -> bool {
        match self {
            Self::TimedOut
            | Self::ConnectionRefused
            | Self::ConnectionClosed
            | Self::NotConnected(_)
            | Self::NotSent(_) => true,
            Self::ErrorReply(text) => !ServerError::of(text).lasts(),
            Self::NotAdmitted(why) => why.is_curable(),
            Self::Unusable(_) | Self::Demoted(_) | Self::TwinOf(_) => false,
        }
    }

    /// Returns how TLS prevented the connection. `None` if TLS did not, or if there is a
    /// connection.
    pub fn tls(&self) -> Option<TlsFault> {
        match self {
            Self::NotConnected(why) | Self::Unusable(why) => why.tls,
            _ => None,
        }
    }

    /// Returns `true` if the master itself answered with an error. In that case nothing was done.
    pub fn is_error_reply(&self) -> bool {
        matches!(self, Self::ErrorReply(_) | Self::Demoted(_))
    }
}

/// The reason for a missing connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NoConnection {
    text: Cow<'static, str>,
    tls: Option<TlsFault>,
}

/// The way in which TLS prevented a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TlsFault {
    /// The URL does not use TLS, and the server requires it or might require it.
    Required,
    /// The server did not answer the handshake, so it might not use TLS on this port.
    Unanswered,
    /// The handshake failed, for example because of an untrusted certificate.
    Failed,
    /// The server rejected the certificate of this client, or its absence.
    Rejected,
}

impl NoConnection {
    /// Returns the reason as a text for users. Empty if it is not known.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Creates the reason for a connection that TLS prevented.
    pub fn of_tls(tls: TlsFault, text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into(), tls: Some(tls) }
    }
}

impl From<Cow<'static, str>> for NoConnection {
    fn from(text: Cow<'static, str>) -> Self {
        Self { text, tls: None }
    }
}

impl From<&'static str> for NoConnection {
    fn from(text: &'static str) -> Self {
        Cow::from(text).into()
    }
}

impl From<String> for NoConnection {
    fn from(text: String) -> Self {
        Cow::from(text).into()
    }
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("timed out"),
            Self::ConnectionRefused => f.write_str("connection refused"),
            Self::ConnectionClosed => f.write_str("connection closed"),
            Self::NotConnected(why) if why.text.is_empty() => f.write_str("not connected"),
            Self::NotConnected(why) | Self::Unusable(why) => write!(f, "not connected: {why}"),
            Self::NotSent(why) => write!(f, "not sent: {why}"),
            Self::ErrorReply(error) | Self::Demoted(error) => write!(f, "error reply: {error}"),
            Self::NotAdmitted(why) => write!(f, "not admitted: {why}"),
            Self::TwinOf(name) => write!(f, "duplicate address of {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WhyNot;

    #[test]
    fn causes_read_in_the_words_of_the_command() {
        let text: Vec<_> = [
            Cause::TimedOut,
            Cause::ConnectionRefused,
            Cause::ConnectionClosed,
            Cause::NotConnected("".into()),
            Cause::Unusable("not a Redis".into()),
            Cause::NotSent("too many requests".into()),
            Cause::ErrorReply("OOM".into()),
            Cause::Demoted("READONLY".into()),
            Cause::NotAdmitted(NotAdmitted::new(WhyNot::Replica).into()),
            Cause::TwinOf("a:1".into()),
        ]
        .map(|cause| cause.to_string())
        .into();
        assert_eq!(
            text,
            [
                "timed out",
                "connection refused",
                "connection closed",
                "not connected",
                "not connected: not a Redis",
                "not sent: too many requests",
                "error reply: OOM",
                "error reply: READONLY",
                "not admitted: it is a replica; use independent masters",
                "duplicate address of a:1",
            ]
        );
    }

    #[test]
    fn waiting_does_not_fix_faults_that_need_an_operator() {
        let reply = |error: &str| Cause::of_error_reply(error.into());
        for lasting in [
            reply("WRONGPASS invalid username-password pair or user is disabled."),
            reply("NOAUTH Authentication required."),
            reply("NOPERM this user has no permissions to run the 'set' command"),
            reply(
                "ERR AUTH <password> called without any password configured for the default user",
            ),
            reply("ERR Client sent AUTH, but no password is set"),
            reply("ERR invalid password"),
            reply("DENIED Redis is running in protected mode because protected mode is enabled"),
            reply("MOVED 1234 10.0.0.1:6379"),
            reply("ERR DB index is out of range"),
            reply("ERR unknown command 'SET', with args beginning with: "),
            reply("READONLY You can't write against a read only replica."),
            Cause::TwinOf("a:1".into()),
            Cause::NotAdmitted(NotAdmitted::new(WhyNot::Replica).into()),
            Cause::Unusable("not a Redis, it said \"HTTP/1.1\"".into()),
        ] {
            assert!(!lasting.is_curable(), "{lasting}");
        }
    }

    #[test]
    fn waiting_can_fix_temporary_faults() {
        let reply = |error: &str| Cause::of_error_reply(error.into());
        for passing in [
            reply("LOADING Redis is loading the dataset in memory"),
            reply("OOM command not allowed when used memory > 'maxmemory'."),
            reply("MISCONF Errors writing to the AOF file"),
            reply("BUSY Redis is busy running a script."),
            reply("ERR max number of clients reached"),
            Cause::TimedOut,
            Cause::ConnectionRefused,
            Cause::ConnectionClosed,
            Cause::NotConnected("TLS: unexpected end of file".into()),
            Cause::NotSent("too many requests are unanswered".into()),
        ] {
            assert!(passing.is_curable(), "{passing}");
        }
    }
}
