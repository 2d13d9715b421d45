//! Several independent masters.

use std::ops::Deref;

use anyhow::Context;
use redlock_core::admission::{Names, RecordedSet, SetId};

use super::{RedisServer, ServerOptions};
use crate::FaultProxy;

/// Independent, disposable masters. All exit when the value is dropped.
///
/// Derefs to a slice: `servers[0]`, `servers.iter()`, `servers.len()`.
#[derive(Debug)]
pub struct RedisServers(Vec<RedisServer>);

impl RedisServers {
    /// Starts `count` servers with the defaults of [`ServerOptions`].
    ///
    /// # Errors
    ///
    /// See [`RedisServer::start`]. Stops the servers that it already started.
    pub fn start(count: usize) -> anyhow::Result<Self> {
        Self::with(count, &ServerOptions::new())
    }

    /// Starts `count` servers. Unless they are new, their records name them as one set of masters,
    /// as after `redlock init`.
    ///
    /// # Errors
    ///
    /// See [`RedisServer::with`]. Stops the servers that it already started.
    pub fn with(count: usize, options: &ServerOptions) -> anyhow::Result<Self> {
        let started =
            (0..count).map(|place| RedisServer::launch(&options.clone().at_place(place)?));
        let mut servers = started.collect::<anyhow::Result<Vec<_>>>()?;
        if !options.is_brand_new {
            admit_all(&mut servers)?;
        }
        Ok(Self(servers))
    }

    /// Returns the URL of each server, in order.
    pub fn urls(&self) -> Vec<String> {
        self.iter().map(RedisServer::url).collect()
    }

    /// Starts a fault proxy in front of each server, in order. The proxies run on the current
    /// runtime.
    ///
    /// # Errors
    ///
    /// See [`FaultProxy::start`].
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub async fn proxied(&self) -> anyhow::Result<Vec<FaultProxy>> {
        let mut proxies = Vec::with_capacity(self.len());
        for server in self.iter() {
            proxies.push(FaultProxy::before(server).await?);
        }
        Ok(proxies)
    }
}

/// Admits servers that were just started, as members of one set.
fn admit_all(servers: &mut [RedisServer]) -> anyhow::Result<()> {
    let names = Names::new(servers.iter().map(RedisServer::name));
    let size = u8::try_from(servers.len()).context("a set has 255 masters at most")?;
    let set = RecordedSet { id: SetId(rand::random()), size, names };
    for server in servers {
        server.join(set.clone());
        server.init()?;
    }
    Ok(())
}

impl Deref for RedisServers {
    type Target = [RedisServer];

    fn deref(&self) -> &[RedisServer] {
        &self.0
    }
}
