//! Several independent masters at once.

use std::ops::Deref;

use anyhow::Context;
use redlock_core::admission::{Names, RecordedSet, SetId};

use super::{RedisServer, ServerOptions};
use crate::FaultProxy;

/// Independent throw-away masters; all end when the value is dropped.
///
/// Derefs to a slice: `servers[0]`, `servers.iter()`, `servers.len()`.
#[derive(Debug)]
pub struct RedisServers(Vec<RedisServer>);

impl RedisServers {
    /// Starts `count` servers with nothing but the defaults of [`ServerOptions`].
    ///
    /// # Errors
    ///
    /// As [`RedisServer::start`]; servers already started are stopped again.
    pub fn start(count: usize) -> anyhow::Result<Self> {
        Self::with(count, &ServerOptions::new())
    }

    /// Starts `count` servers. Unless they are brand new, their records name them as one set of
    /// masters, as after `redlock init`.
    ///
    /// # Errors
    ///
    /// As [`RedisServer::with`]; servers already started are stopped again.
    pub fn with(count: usize, options: &ServerOptions) -> anyhow::Result<Self> {
        let started =
            (0..count).map(|place| RedisServer::launch(&options.clone().at_place(place)?));
        let mut servers = started.collect::<anyhow::Result<Vec<_>>>()?;
        if !options.is_brand_new {
            admit_all(&mut servers)?;
        }
        Ok(Self(servers))
    }

    /// The URL of each server, in their order.
    pub fn urls(&self) -> Vec<String> {
        self.iter().map(RedisServer::url).collect()
    }

    /// Puts a fault proxy before each server, in their order; they run on the current runtime.
    ///
    /// # Errors
    ///
    /// As [`FaultProxy::start`].
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
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
