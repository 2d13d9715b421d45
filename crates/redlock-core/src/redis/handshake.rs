//! What is asked on every new connection before the master may vote.

use redis::{Cmd, Value, cmd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::address::Login;
use super::encode::Native;
use super::reply::{self, Garbage};
use super::stream::{Stream, cause, not_connected};
use crate::Cause;

/// Who answers at the other end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// New with every server process.
    pub(super) run_id: String,
    /// The server's number for this connection.
    pub(super) client_id: i64,
    /// The server's own command for a release, where it has one.
    pub(super) native: Option<Native>,
}

/// A connection that is being set up: requests and replies one batch at a time.
pub(super) struct Talk<'a> {
    stream: &'a mut dyn Stream,
    unread: Vec<u8>,
}

impl<'a> Talk<'a> {
    pub(super) fn new(stream: &'a mut dyn Stream) -> Self {
        Self { stream, unread: Vec::new() }
    }

    /// Logs in, and learns who answers and whether it may vote.
    pub(super) async fn greet(&mut self, login: &Login) -> Result<Identity, Cause> {
        let mut batch = logins(login);
        let logins = batch.len();
        batch.extend(introductions());
        let asked = batch.len();
        batch.extend([cmd("CLIENT").arg("ID").clone(), info("server"), info("replication")]);
        let mut replies = self.ask(&batch).await?;
        let facts = replies.split_off(asked);
        // Log-ins must succeed. The rest is a courtesy, or a question that need not be answered.
        let native = replies.pop().as_ref().and_then(native);
        for reply in replies.into_iter().take(logins) {
            succeeded(reply)?;
        }
        admit(facts, native)
    }

    /// Ends the connection that the server knows under `client_id`. Once this has been answered,
    /// no request that was on its way there will ever be carried out.
    ///
    /// A server that does not allow it answers with an error; the connection that took its place
    /// is of use all the same.
    pub(super) async fn kill(&mut self, client_id: i64) -> Result<(), Cause> {
        let kill = cmd("CLIENT").arg("KILL").arg("ID").arg(client_id).clone();
        self.ask(&[kill]).await.map(drop)
    }

    async fn ask(&mut self, batch: &[Cmd]) -> Result<Vec<Value>, Cause> {
        let packed: Vec<u8> = batch.iter().flat_map(Cmd::get_packed_command).collect();
        self.stream.write_all(&packed).await.map_err(|error| cause(&error))?;
        let mut replies = Vec::with_capacity(batch.len());
        while replies.len() < batch.len() {
            match self.take().map_err(|Garbage| self.stranger())? {
                Some(reply) => replies.push(reply),
                None => self.read().await?,
            }
        }
        Ok(replies)
    }

    fn take(&mut self) -> Result<Option<Value>, Garbage> {
        let Some(len) = reply::len(&self.unread)? else { return Ok(None) };
        let reply = reply::parse(&self.unread[..len])?;
        self.unread.drain(..len);
        Ok(Some(reply))
    }

    async fn read(&mut self) -> Result<(), Cause> {
        match self.stream.read_buf(&mut self.unread).await {
            Ok(0) => Err(Cause::ConnectionClosed),
            Ok(_) => Ok(()),
            Err(error) => Err(cause(&error)),
        }
    }

    fn stranger(&self) -> Cause {
        let said = &self.unread[..self.unread.len().min(32)];
        not_connected(format!("not a Redis, it said \"{}\"", said.escape_ascii()))
    }
}

fn logins(login: &Login) -> Vec<Cmd> {
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

fn introductions() -> [Cmd; 3] {
    let setinfo =
        |what: &str, value: &str| cmd("CLIENT").arg("SETINFO").arg(what).arg(value).clone();
    let commands = cmd("COMMAND").arg("INFO").arg("DELIFEQ").arg("DELEX").clone();
    [setinfo("LIB-NAME", "redlock"), setinfo("LIB-VER", env!("CARGO_PKG_VERSION")), commands]
}

/// Which of the commands asked for the server has: none is told by nil.
fn native(reply: &Value) -> Option<Native> {
    let Value::Array(known) = reply else { return None };
    let has =
        |place: usize| matches!(known.get(place), Some(Value::Array(about)) if !about.is_empty());
    if has(0) { Some(Native::DelIfEq) } else { has(1).then_some(Native::DelEx) }
}

fn info(section: &str) -> Cmd {
    cmd("INFO").arg(section).clone()
}

fn succeeded(reply: Value) -> Result<Value, Cause> {
    match reply {
        Value::ServerError(error) => Err(Cause::ErrorReply(reply::message(&error))),
        reply => Ok(reply),
    }
}

/// Whether a server that describes itself so may vote.
fn admit(facts: Vec<Value>, native: Option<Native>) -> Result<Identity, Cause> {
    let mut told = Vec::with_capacity(facts.len());
    for fact in facts {
        told.push(succeeded(fact)?);
    }
    let [client_id, server, replication] = told.as_slice() else {
        return Err(not_connected("not a Redis"));
    };
    let (server, replication) = (text(server)?, text(replication)?);
    // Valkey has given the field a name of its own.
    let modes = ["redis_mode", "server_mode"].map(|name| field(&server, name));
    if modes.contains(&Some("cluster")) {
        return Err(Cause::NotAdmitted("it is in cluster mode, give independent masters".into()));
    }
    match field(&replication, "role") {
        Some("master") => {}
        Some("slave") => {
            return Err(Cause::NotAdmitted("it is a replica, give independent masters".into()));
        }
        _ => return Err(Cause::NotAdmitted("it is not a master".into())),
    }
    match (field(&server, "run_id"), client_id) {
        (Some(run_id), Value::Int(client_id)) => {
            Ok(Identity { run_id: run_id.to_owned(), client_id: *client_id, native })
        }
        _ => Err(Cause::NotAdmitted("INFO server does not tell its run_id".into())),
    }
}

fn text(reply: &Value) -> Result<String, Cause> {
    match reply {
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Value::VerbatimString { text, .. } => Ok(text.clone()),
        _ => Err(not_connected("not a Redis, INFO is no text")),
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(server: &str, replication: &str) -> Vec<Value> {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        vec![Value::Int(7), bulk(server), bulk(replication)]
    }

    const SERVER: &str = "# Server\r\nredis_mode:standalone\r\nrun_id:abc\r\n";
    const MASTER: &str = "# Replication\r\nrole:master\r\n";

    #[test]
    fn a_standalone_master_is_admitted_with_its_identity() {
        let identity = admit(facts(SERVER, MASTER), None);
        let expected = Identity { run_id: "abc".into(), client_id: 7, native: None };
        assert_eq!(identity, Ok(expected));
    }

    #[test]
    fn replicas_cluster_nodes_and_sentinels_are_not_admitted() {
        let replica = facts(SERVER, "role:slave\r\nmaster_host:m\r\n");
        let cluster = facts("redis_mode:cluster\r\nrun_id:abc\r\n", MASTER);
        let valkey = facts("server_mode:cluster\r\nrun_id:abc\r\n", MASTER);
        let sentinel = facts("redis_mode:sentinel\r\nrun_id:abc\r\n", "");
        let expected =
            [(replica, "replica"), (cluster, "cluster"), (valkey, "cluster"), (sentinel, "master")];
        for (facts, word) in expected {
            let refused = admit(facts, None).unwrap_err();
            assert!(matches!(refused, Cause::NotAdmitted(_)), "{refused}");
            assert!(refused.to_string().contains(word), "{refused}");
        }
    }

    #[test]
    fn a_server_that_will_not_say_who_it_is_is_not_admitted() {
        assert!(matches!(admit(facts("", MASTER), None), Err(Cause::NotAdmitted(_))));
        let error = redis::parse_redis_value(b"-NOPERM no INFO for you\r\n").unwrap();
        let mut denied = facts(SERVER, MASTER);
        denied[1] = error;
        assert_eq!(admit(denied, None), Err(Cause::ErrorReply("NOPERM no INFO for you".into())));
    }
}
