//! Fault proxies on a separate thread, which share no runtime with the measured code.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlock_testkit::{Direction, FaultProxy, RedisServer, RedisServers};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// One proxy in front of each master. They stop when this is dropped.
pub struct Proxies {
    proxies: Vec<FaultProxy>,
    _stop: oneshot::Sender<()>,
}

impl Proxies {
    pub fn start(servers: &RedisServers) -> anyhow::Result<Self> {
        let names: Vec<String> = servers.iter().map(RedisServer::name).collect();
        let (ready, started) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        thread::spawn(move || {
            runtime.block_on(async move {
                let mut proxies = Vec::new();
                for name in names {
                    proxies.push(FaultProxy::start(name).await);
                }
                // The caller keeps the receiver until the proxies are ready.
                let _ = ready.send(proxies);
                let _ = stopped.await;
            });
        });
        let proxies = started.recv()?.into_iter().collect::<anyhow::Result<_>>()?;
        Ok(Self { proxies, _stop: stop })
    }

    /// `host:port` of each.
    pub fn names(&self) -> Vec<String> {
        self.proxies.iter().map(FaultProxy::name).collect()
    }

    /// Commands to the first `count` masters take this much longer.
    pub fn delay(&self, count: usize, delay: Duration) {
        self.proxies[..count].iter().for_each(|proxy| proxy.delay(Direction::ToServer, delay));
    }
}
