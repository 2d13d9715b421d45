//! A relay before one master that can keep back what an old connection was sent, and let new
//! connections pass: the late packets of which distributed systems are afraid.

use std::sync::Arc;

use redlock_testkit::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// A relay whose first connection can be held up. Stops when it is dropped.
pub(crate) struct Relay {
    port: u16,
    held: watch::Sender<bool>,
    delivered: Arc<Semaphore>,
    relaying: JoinHandle<()>,
}

impl Relay {
    pub(crate) async fn before(server: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (held, delivered) = (watch::Sender::new(false), Arc::new(Semaphore::new(0)));
        let first = First { held: held.subscribe(), delivered: delivered.clone() };
        let relaying = tokio::spawn(relay(listener, server.port(), first));
        Self { port, held, delivered, relaying }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// From here on what the first connection sends is kept, also when its client hangs up.
    pub(crate) fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Delivers the held bytes, and returns once the master has them.
    pub(crate) async fn deliver(&self) {
        self.held.send_replace(false);
        self.delivered.acquire().await.unwrap().forget();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.relaying.abort();
    }
}

struct First {
    held: watch::Receiver<bool>,
    delivered: Arc<Semaphore>,
}

async fn relay(listener: TcpListener, port: u16, first: First) {
    let mut first = Some(first);
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        match first.take() {
            Some(first) => {
                let (from_client, mut to_client) = client.into_split();
                let (mut from_server, to_server) = server.into_split();
                tokio::spawn(first.forward(from_client, to_server));
                tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
            }
            None => {
                tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
            }
        }
    }
}

impl First {
    async fn forward(mut self, mut client: OwnedReadHalf, mut server: OwnedWriteHalf) {
        let mut bytes = vec![0; 16 * 1024];
        // An error is also an end: the bytes read before it are on their way.
        while let Ok(length @ 1..) = client.read(&mut bytes).await {
            let kept = *self.held.borrow();
            if self.held.wait_for(|held| !held).await.is_err() {
                return;
            }
            // The master may have closed the connection, which some tests expect.
            let _ = server.write_all(&bytes[..length]).await;
            if kept {
                self.delivered.add_permits(1);
            }
        }
    }
}
