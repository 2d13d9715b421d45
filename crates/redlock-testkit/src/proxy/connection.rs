//! One connection through the proxy: two streams, each a queue with faults in front of its exit.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::faults::{Faults, Lane};
use super::pushes::Pushes;

/// Ends a connection that was just accepted with a reset.
pub(super) fn refuse(client: TcpStream) -> io::Result<()> {
    client.set_zero_linger()
}

/// Keeps a connection open and never answers, until the client leaves or all are reset.
pub(super) async fn swallow(mut client: TcpStream, shared: &Shared, resets: u64) -> io::Result<()> {
    let mut buffer = [0; 1024];
    let silence = async { while matches!(client.read(&mut buffer).await, Ok(1..)) {} };
    tokio::select! {
        () = reset(shared, resets) => client.set_zero_linger(),
        () = silence => Ok(()),
    }
}

/// Forwards a connection in both directions until both streams have ended or it is reset.
///
/// `resets` is the number of resets when the connection was accepted.
pub(super) async fn forward(mut client: TcpStream, shared: &Shared, resets: u64) -> io::Result<()> {
    // If the server is down, it refuses connections. For a connection that the proxy has already
    // accepted, a reset is the closest equivalent.
    let Ok(mut server) = TcpStream::connect(shared.upstream).await else { return refuse(client) };
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let upward = Stream { shared, resets, lane: |faults| &mut faults.to_server };
    let downward = Stream { shared, resets, lane: |faults| &mut faults.to_client };
    let ended = tokio::select! {
        biased;
        () = reset(shared, resets) => Err(Reset),
        ended = async {
            let upward = upward.run(from_client, to_server);
            tokio::try_join!(upward, downward.run(from_server, to_client))
        } => ended.map(|_| ()),
    };
    if let Err(Reset) = ended {
        // Closing a socket that must not linger sends RST instead of the usual end.
        client.set_zero_linger()?;
        server.set_zero_linger()?;
    }
    Ok(())
}

/// Returns when all connections were reset once more than `resets` times.
async fn reset(shared: &Shared, resets: u64) {
    // The sender is in `shared` itself, so waiting for its changes cannot fail.
    let _ = shared.faults.subscribe().wait_for(|faults| faults.resets != resets).await;
}

/// One direction of one connection.
#[derive(Clone, Copy)]
struct Stream<'a> {
    shared: &'a Shared,
    /// The number of resets when this connection was made.
    resets: u64,
    lane: fn(&mut Faults) -> &mut Lane,
}

/// A reset in the middle of a stream.
struct Reset;

/// A piece of a stream, as it was read.
struct Arrival {
    at: Instant,
    /// Empty for the end of the stream.
    bytes: Vec<u8>,
    /// The state of the lane at that time.
    lane: Lane,
    /// Its share of the queue's capacity, which is freed when the piece is dropped.
    _room: OwnedSemaphorePermit,
}

impl Stream<'_> {
    async fn run(self, source: ReadHalf<'_>, sink: WriteHalf<'_>) -> Result<(), Reset> {
        let (sender, queue) = mpsc::unbounded_channel();
        tokio::try_join!(self.read(source, sender), self.deliver(queue, sink)).map(|_| ())
    }

    /// Queues arriving bytes, followed by the end of the stream.
    ///
    /// An abrupt end is queued like a clean one, because the bytes read before it are still on
    /// their way.
    async fn read(
        self,
        mut source: ReadHalf<'_>,
        queue: mpsc::UnboundedSender<Arrival>,
    ) -> Result<(), Reset> {
        let room = Arc::new(Semaphore::new(QUEUE_BYTES_MAX));
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        loop {
            let bytes = match source.read(&mut buffer).await {
                Ok(length) => buffer[..length].to_vec(),
                Err(_) => Vec::new(),
            };
            let (at, last) = (Instant::now(), bytes.is_empty());
            let (lane, _) = self.now();
            // The semaphore is never closed, and the length of a piece fits into a u32.
            let Ok(_room) = Arc::clone(&room).acquire_many_owned(bytes.len() as u32).await else {
                return Ok(());
            };
            if queue.send(Arrival { at, bytes, lane, _room }).is_err() || last {
                return Ok(());
            }
        }
    }

    /// Delivers the queue, each piece when the faults allow it.
    async fn deliver(
        self,
        mut queue: mpsc::UnboundedReceiver<Arrival>,
        mut sink: WriteHalf<'_>,
    ) -> Result<(), Reset> {
        // Once bytes are lost or the receiver is gone, the rest is read and thrown away: a sender
        // does not learn from a full socket what became of its bytes.
        let mut deaf = false;
        let mut pushes = Pushes::default();
        while let Some(arrival) = queue.recv().await {
            deaf = deaf
                || !self.may_pass(&arrival).await
                || self.pass(&arrival.bytes, &mut pushes, &mut sink).await?;
        }
        Ok(())
    }

    /// Waits until a piece may pass. Returns `false` if it is lost.
    async fn may_pass(self, arrival: &Arrival) -> bool {
        let mut changes = self.shared.faults.subscribe();
        loop {
            changes.mark_unchanged();
            let (lane, resets) = self.now();
            let dropped = arrival.lane.dropping || arrival.lane.drops != lane.drops;
            // A reset applies even if this connection has not noticed it yet.
            if dropped || resets != self.resets {
                return false;
            }
            let due = arrival.at + lane.delay;
            if !lane.held && due <= Instant::now() {
                return true;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(due), if !lane.held => {}
            }
        }
    }

    /// Writes a piece; true if the receiver is gone.
    async fn pass(
        self,
        bytes: &[u8],
        pushes: &mut Pushes,
        sink: &mut WriteHalf<'_>,
    ) -> Result<bool, Reset> {
        if bytes.is_empty() {
            return Ok(sink.shutdown().await.is_err());
        }
        let bytes = pushes.filter(bytes, self.now().0.dropping_pushes);
        let (length, cut) = self.admit(bytes.len());
        let gone = sink.write_all(&bytes[..length]).await.is_err();
        if cut { Err(Reset) } else { Ok(gone) }
    }

    /// The faults of this direction, and how often connections were reset.
    fn now(self) -> (Lane, u64) {
        let mut faults = *self.shared.faults.borrow();
        (*(self.lane)(&mut faults), faults.resets)
    }

    /// Takes bytes from the budget of `reset_after`, if there is one.
    fn admit(self, length: usize) -> (usize, bool) {
        let mut admitted = (length, false);
        self.shared.faults.send_if_modified(|faults| {
            admitted = (self.lane)(faults).admit(length);
            // Nothing waits for the budget.
            false
        });
        admitted
    }
}

const QUEUE_BYTES_MAX: usize = 1024 * 1024;
const PIECE_BYTES_MAX: usize = 16 * 1024;
