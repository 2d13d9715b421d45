//! `Connectors`: the certificates of each new connection.

use std::io;
use std::time::Duration;

use tokio::time::timeout;

use super::super::beside::Beside;
use super::super::stream::not_connected;
use super::{Connector, InvalidTls, Source, Tls};
use crate::Cause;

/// How much of the connect timeout the certificates may take.
const SHARE: f64 = 0.9;

/// TLS connectors for the connections to one master.
pub(in crate::redis) struct Connectors {
    first: Connector,
    /// None if the certificates stay as they are.
    source: Option<(Source, Beside<Connector>)>,
}

impl Connectors {
    /// # Errors
    /// Returns [`InvalidTls`] if the certificates cannot be used now.
    pub(in crate::redis) fn new(tls: &Tls) -> Result<Self, InvalidTls> {
        let source = tls.source.clone().map(|source| (source, Beside::new("redlock-tls")));
        Ok(Self { first: tls.connector()?, source })
    }

    /// Returns the connector for a new connection. It uses the present certificates, even if the
    /// files have changed.
    pub(in crate::redis) async fn next(&self, limit: Duration) -> Result<Connector, Cause> {
        let Some((source, beside)) = &self.source else { return Ok(self.first.clone()) };
        let read = beside.run(|| {
            let source = source.clone();
            move || {
                let tls = source()?;
                tls.connector().map_err(|error| io::Error::other(tls.explained(&error)))
            }
        });
        match timeout(limit.mul_f64(SHARE), read).await {
            Ok(read) => read.map_err(|error| not_connected(format!("no certificates: {error}"))),
            Err(_) => Err(not_connected("no certificates: they were not read in time")),
        }
    }
}
