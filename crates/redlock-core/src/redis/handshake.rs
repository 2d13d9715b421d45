//! The requests on every new connection before it is used. See rules C3 and C4 of
//! `docs/PROTOCOL.md`.

use redis::{Cmd, Value, cmd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::address::Login;
use super::dial::cause;
use super::encode::Native;
use super::facts::{self, info};
use super::namespace::Namespace;
use super::queues;
use super::reply::{self, Aside};
use super::resp::{self, Garbage};
use super::stream::{LAST_WORDS, Stream, unusable};
use crate::server_error::ServerError;
use crate::{Cause, Facts, NoConnection, NodeEvent, TlsFault};

/// The server at the other end of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// The facts that it reports about itself.
    pub(super) facts: Facts,
    /// The server's number for this connection.
    pub(super) client_id: i64,
    /// The server's own command for a release, if it has one.
    pub(super) native: Option<Native>,
    /// Why no lock can be released there, if so.
    pub(super) no_release: Option<String>,
}

/// A connection that is being set up: requests and replies one batch at a time.
pub(super) struct Talk<'a> {
    stream: &'a mut dyn Stream,
    unread: Vec<u8>,
    pushed: Vec<NodeEvent>,
    /// The server has sent at least one byte.
    has_received: bool,
}

impl<'a> Talk<'a> {
    pub(super) fn new(stream: &'a mut dyn Stream) -> Self {
        Self { stream, unread: Vec::new(), pushed: Vec::new(), has_received: false }
    }

    /// Logs in, and learns which server answers.
    pub(super) async fn greet(
        &mut self,
        login: &Login,
        namespace: Option<&Namespace>,
    ) -> Result<Identity, Cause> {
        let mut batch = logins(login);
        let logins = batch.len();
        batch.extend(introductions());
        let asked = batch.len();
        batch.extend([cmd("CLIENT").arg("ID").clone(), info("server"), info("replication")]);
        batch.extend(namespace.map(Namespace::read_record));
        batch.extend(namespace.filter(|it| it.fenced).map(Namespace::probe));
        let asks_for_queues = namespace.filter(|it| it.queues);
        batch.extend(asks_for_queues.map(queues::probe));
        // A client must not acquire a lock that it cannot release. The probe for queues covers this
        // right as well.
        let asks_for_release = namespace.filter(|it| !it.queues && !it.fenced);
        batch.extend(asks_for_release.map(queues::release_probe));
        let mut replies = self.ask(&batch).await?;
        let mut said = replies.split_off(asked);
        let probed = asks_for_queues.or(asks_for_release).and_then(|_| said.pop());
        let queues = asks_for_queues.and(probed.as_ref());
        // Log-ins must succeed. The other requests may be refused.
        let native = replies.pop().as_ref().and_then(native);
        let tracks = replies.get(logins..).is_some_and(tracks);
        let speaks_resp3 = matches!(replies.get(logins), Some(Value::Map(_)));
        for reply in replies.into_iter().take(logins) {
            succeeded(reply)?;
        }
        let mut identity = identify(&said, native)?;
        identity.facts.tracks = tracks;
        identity.facts.no_queue = no_queue(speaks_resp3, queues);
        identity.no_release = probed.as_ref().and_then(queues::no_release);
        Ok(identity)
    }

    /// Returns the pushes that arrived during the handshake, and the bytes not yet parsed.
    pub(super) fn into_rest(self) -> (Vec<NodeEvent>, Vec<u8>) {
        (self.pushed, self.unread)
    }

    /// Closes the connection that the server knows as `client_id`. Returns `true` if no request on
    /// that connection can be carried out later.
    ///
    /// A server that does not allow it answers with an error. The connection that replaced it can
    /// still be used.
    pub(super) async fn kill(&mut self, client_id: i64) -> Result<bool, Cause> {
        let kill = cmd("CLIENT").arg("KILL").arg("ID").arg(client_id).clone();
        let replies = self.ask(&[kill]).await?;
        Ok(match replies.as_slice() {
            [Value::ServerError(error)] => resp::kind(error) == ServerError::NoClient,
            [Value::Int(_) | Value::Okay] => true,
            _ => false,
        })
    }

    /// Sends the requests in one write, and returns the reply to each.
    pub(super) async fn ask(&mut self, batch: &[Cmd]) -> Result<Vec<Value>, Cause> {
        let packed: Vec<u8> = batch.iter().flat_map(Cmd::get_packed_command).collect();
        let written = self.stream.write_all(&packed).await.map_err(|error| cause(&error));
        let mut replies = Vec::with_capacity(batch.len());
        let reading = self.replies(batch.len(), &mut replies);
        let read = match written {
            Ok(()) => reading.await,
            Err(cause) => timeout(LAST_WORDS, reading).await.unwrap_or(Err(cause)),
        };
        match (read, replies.as_slice()) {
            (Ok(()), _) => Ok(replies),
            // An error in place of all replies is why the server refuses this client.
            (Err(_), [Value::ServerError(error)]) => Err(resp::refusal(error)),
            (Err(cause), _) => Err(cause),
        }
    }

    async fn replies(&mut self, count: usize, into: &mut Vec<Value>) -> Result<(), Cause> {
        while into.len() < count {
            match self.take().map_err(|Garbage| self.stranger())? {
                Some(reply) => into.push(reply),
                None => self.read().await?,
            }
        }
        Ok(())
    }

    /// Returns the next reply, or `None` if it is incomplete.
    fn take(&mut self) -> Result<Option<Value>, Garbage> {
        while let Some(len) = resp::len(&self.unread)? {
            let bytes = &self.unread[..len];
            if resp::is_aside(bytes) {
                if let Aside::Events(events) = reply::aside(bytes)? {
                    self.pushed.extend(events);
                }
                self.unread.drain(..len);
            } else {
                let reply = resp::parse(bytes)?;
                self.unread.drain(..len);
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    async fn read(&mut self) -> Result<(), Cause> {
        match self.stream.read_buf(&mut self.unread).await {
            Ok(0) => Err(Cause::ConnectionClosed),
            Ok(_) => {
                self.has_received = true;
                Ok(())
            }
            Err(error) => Err(cause(&error)),
        }
    }

    /// Returns `true` if the server has sent anything at all.
    pub(super) fn has_received(&self) -> bool {
        self.has_received
    }

    fn stranger(&self) -> Cause {
        /// How an alert of TLS 1.0 to 1.3 begins.
        const TLS_ALERT: &[u8] = b"\x15\x03";
        if self.unread.starts_with(TLS_ALERT) {
            return unusable(NoConnection::of_tls(TlsFault::Required, SPEAKS_TLS));
        }
        if self.unread.starts_with(b"HTTP/") {
            return unusable(SPEAKS_HTTP);
        }
        let said = &self.unread[..self.unread.len().min(32)];
        unusable(format!("not a Redis server: it sent \"{}\"", said.escape_ascii()))
    }
}

const SPEAKS_HTTP: &str =
    "an HTTP server or proxy answers on this port: use the address of the Redis server itself";
const SPEAKS_TLS: &str = "the server speaks TLS on this port: use rediss://";

/// Returns the requests that log in, all of which must succeed.
pub(super) fn logins(login: &Login) -> Vec<Cmd> {
    let mut batch = Vec::new();
    if let Some(password) = &login.password {
        let mut auth = cmd("AUTH");
        if let Some(username) = &login.username {
            auth.arg(username);
        }
        batch.push(auth.arg(password).clone());
    }
    if login.db != 0 {
        batch.push(cmd("SELECT").arg(login.db).clone());
    }
    batch
}

/// Returns `true` if the server reports changes of keys. A server also claims that on RESP2
/// connections, over which it cannot push. A map in the reply shows that the connection uses RESP3.
fn tracks(introduced: &[Value]) -> bool {
    matches!(introduced, [Value::Map(_), Value::Okay, Value::Okay, ..])
}

/// Returns the reason why no shared queue can be used, from the reply to the probe. `probed` is
/// `None` if there was no probe.
fn no_queue(speaks_resp3: bool, probed: Option<&Value>) -> Option<String> {
    match probed {
        _ if !speaks_resp3 => Some(Facts::PUSHES_NOTHING.into()),
        None => Some("they are switched off".into()),
        Some(reply) => queues::why_not(reply),
    }
}

/// Returns the first commands of a connection. A server that does not know the first three
/// continues with RESP2, and tracks nothing. The third has no effect here and tests a right that
/// each watch needs.
fn introductions() -> [Cmd; 6] {
    let hello = cmd("HELLO").arg(3).clone();
    let tracking = cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").clone();
    let caching = cmd("CLIENT").arg("CACHING").arg("YES").clone();
    let setinfo =
        |what: &str, value: &str| cmd("CLIENT").arg("SETINFO").arg(what).arg(value).clone();
    let commands = cmd("COMMAND").arg("INFO").arg("DELIFEQ").arg("DELEX").clone();
    let [name, version] =
        [setinfo("LIB-NAME", "redlock"), setinfo("LIB-VER", env!("CARGO_PKG_VERSION"))];
    [hello, tracking, caching, name, version, commands]
}

/// Returns the first of the requested commands that the server has. A missing command is a nil in
/// the reply.
fn native(reply: &Value) -> Option<Native> {
    let Value::Array(known) = reply else { return None };
    let has =
        |place: usize| matches!(known.get(place), Some(Value::Array(about)) if !about.is_empty());
    if has(0) { Some(Native::DelIfEq) } else { has(1).then_some(Native::DelEx) }
}

pub(super) fn succeeded(reply: Value) -> Result<Value, Cause> {
    match reply {
        Value::ServerError(error) => Err(resp::refusal(&error)),
        reply => Ok(reply),
    }
}

/// Parses the facts that the server reports about itself.
fn identify(said: &[Value], native: Option<Native>) -> Result<Identity, Cause> {
    let [client_id, server, replication, more @ ..] = said else {
        return Err(unusable("not a Redis server"));
    };
    let client_id = number(client_id)?;
    let mut facts = facts::facts(server, replication, more.first())?;
    facts.no_ballots = more.get(1).and_then(no_ballots);
    Ok(Identity { facts, client_id, native, no_release: None })
}

/// Returns the number of the connection. Proxies have none, because they share connections.
fn number(reply: &Value) -> Result<i64, Cause> {
    let is_of_proxy = |error: &redis::ServerError| {
        resp::kind(error) == ServerError::Other
            && resp::message(error).to_ascii_lowercase().contains("client")
    };
    match reply {
        Value::Int(number) => Ok(*number),
        Value::ServerError(error) if is_of_proxy(error) => Err(unusable(format!(
            "a proxy or a server older than Redis 5.0 answered CLIENT ID with \"{}\": use the \
             address of a newer server itself",
            resp::message(error)
        ))),
        Value::ServerError(error) => Err(no_number(error)),
        _ => Err(unusable(
            "not a Redis server: CLIENT ID is not a number; if it is a proxy, use the server's own address",
        )),
    }
}

/// Returns the cause with the missing right. Servers before 7.0 name only the command.
fn no_number(error: &redis::ServerError) -> Cause {
    let said = resp::message(error);
    let is_unnamed = resp::kind(error) == ServerError::Denied && !said.contains("client|id");
    let right = if is_unnamed { " (it lacks +client|id)" } else { "" };
    Cause::of_error_reply(format!("{said}{right}"))
}

/// Returns the reason why a server takes no ballots, from its reply to a ballot that changes
/// nothing: the user lacks the right, or the server is older than 6.2. Temporary errors, such as a
/// full memory, are ignored.
fn no_ballots(reply: &Value) -> Option<String> {
    use ServerError::{Denied, UnknownCommand, UnknownWord};
    let Value::ServerError(error) = reply else { return None };
    let lasts = matches!(resp::kind(error), Denied | UnknownCommand | UnknownWord);
    lasts.then(|| resp::message(error))
}

#[cfg(test)]
mod tests {
    use super::super::stream::Closed;
    use super::*;

    #[test]
    fn missing_right_to_client_id_is_always_named() {
        for (said, named) in [
            ("this user has no permissions to run the 'client' command or its subcommand", true),
            ("User few has no permissions to run the 'client|id' command", false),
        ] {
            let reply = redis::parse_redis_value(format!("-NOPERM {said}\r\n").as_bytes()).unwrap();
            let right = if named { " (it lacks +client|id)" } else { "" };
            assert_eq!(number(&reply), Err(Cause::ErrorReply(format!("NOPERM {said}{right}"))));
        }
    }

    #[tokio::test]
    async fn replies_are_read_after_the_server_stops_reading() {
        let mut stream = Closed(b"-ERR max number of clients reached\r\n");
        let refused = Talk::new(&mut stream).greet(&Login::default(), None).await;
        assert_eq!(refused, Err(Cause::ErrorReply("ERR max number of clients reached".into())));
        let mut stream = Closed(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let refused = Talk::new(&mut stream).greet(&Login::default(), None).await;
        assert_eq!(refused, Err(unusable(SPEAKS_HTTP)));
        let silent = Talk::new(&mut Closed(b"")).greet(&Login::default(), None).await;
        assert_eq!(silent, Err(Cause::ConnectionClosed));
    }
}
