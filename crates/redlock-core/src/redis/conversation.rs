//! `Conversation`: a connection like those of a [`RedisNode`](super::RedisNode), for requests
//! outside of the protocol.

use std::fmt;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::timeout;

use super::address::Address;
use super::credentials::{CredentialsProvider, Logins};
use super::dial::{self, Resolver};
use super::handshake::{self, Talk};
use super::stream::{Stream, unusable};
use super::{InvalidNode, Tls, connectors};
use crate::Cause;

/// A connection to one server, for requests outside of the protocol.
///
/// It handles URLs, certificates and errors like the connection of a
/// [`RedisNode`](super::RedisNode). Its replies use RESP2, whatever protocol the URL sets.
pub struct Conversation {
    stream: Box<dyn Stream>,
    name: String,
    user: String,
    database: i64,
}

impl Conversation {
    /// Connects and logs in, within `limit`.
    ///
    /// # Errors
    /// Returns the reason why there is no connection.
    pub async fn open(
        url: &str,
        tls: &Tls,
        credentials: Option<&CredentialsProvider>,
        limit: Duration,
    ) -> Result<Self, Cause> {
        let malformed = |error: InvalidNode| unusable(error.to_string());
        let address = Address::parse(url).map_err(|error| malformed(error.into()))?;
        let connectors = connectors(&address, tls).map_err(|error| malformed(error.into()))?;
        let open = async {
            let (place, resolver) = (&address.place, Resolver::default());
            let login = Logins::new(address.login.clone(), credentials).next(limit).await?;
            let connector = match &connectors {
                Some(connectors) => Some(connectors.next(limit).await?),
                None => None,
            };
            let mut stream = dial::connect(place, &resolver, connector.as_ref(), limit).await?;
            let batch = handshake::logins(&login);
            for reply in Talk::new(&mut *stream).ask(&batch).await? {
                handshake::succeeded(reply)?;
            }
            Ok((stream, login))
        };
        let (stream, login) = timeout(limit, open).await.unwrap_or(Err(Cause::TimedOut))?;
        let user = login.username.clone().unwrap_or_else(|| "default".into());
        Ok(Self { stream, name: address.name, user, database: login.db })
    }

    /// Returns the name of the server, as in answers.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the user of the connection.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the database of the URL, 0 if it names none.
    pub fn database(&self) -> i64 {
        self.database
    }

    /// Sends the commands in one write, and returns the reply to each. An error reply is a reply.
    ///
    /// After a dropped or failed call, the connection can no longer be used.
    ///
    /// # Errors
    /// Returns the reason why not all replies arrived.
    pub async fn ask(&mut self, batch: &[Cmd]) -> Result<Vec<Value>, Cause> {
        Talk::new(&mut *self.stream).ask(batch).await
    }
}

/// Shows no secret.
impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation").field("user", &self.user).finish_non_exhaustive()
    }
}
