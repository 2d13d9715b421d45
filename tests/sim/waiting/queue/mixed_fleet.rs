//! A process of the revision before releases queried M after long holds, together with a process of
//! this revision: its requests, with the plain releases and the queue of that revision.

use std::sync::atomic::{AtomicU32, Ordering};

use redlock_core::{
    Answer, Entry, Node, NodeEvent, Op, QueueTicket, Resource, SharedQueue, Sink, Token, Vote,
    VoteSlot,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::*;

const PX: u64 = 30_000;
/// Longer than the second for which that revision remembered others.
const HOLDS: Duration = ms(1_500);
/// How many turns each process gets at least.
const TURNS: u32 = 10;

struct Old {
    nodes: Vec<Arc<dyn Node>>,
    queue: SharedQueue,
    /// M.
    at: usize,
    clock: Clock,
    asked_at: redlock_core::Instant,
}

struct Votes(UnboundedSender<Vote>);

impl Sink for Votes {
    fn vote(&self, vote: Vote) {
        let _ = self.0.send(vote);
    }

    fn event(&self, _: usize, _: NodeEvent) {}
}

impl Old {
    fn new(client: &SimNodes, at: usize) -> Self {
        let queue = SharedQueue::new(b"", &Resource::from(RESOURCE), QueueTicket::new(7));
        let clock = client.clock();
        Self { nodes: client.nodes(), queue, at, asked_at: clock.now(), clock }
    }

    /// How many of these masters grant it.
    async fn granted(&self, masters: impl IntoIterator<Item = usize>, op: &Op) -> usize {
        let (sender, mut votes) = unbounded_channel();
        let sink: Arc<dyn Sink> = Arc::new(Votes(sender));
        for master in masters {
            let slot = VoteSlot::new(sink.clone(), master, 0, self.clock.now());
            self.nodes[master].submit(op.clone(), slot);
        }
        drop(sink);
        let mut granted = 0;
        while let Some(Vote { answer: Answer { verdict, .. }, .. }) = votes.recv().await {
            granted += usize::from(verdict == Verdict::Granted);
        }
        granted
    }

    fn all(&self) -> std::ops::Range<usize> {
        0..self.nodes.len()
    }

    /// Sends the request to all masters at the same time, as for a key that was refused more than a
    /// second ago.
    async fn acquire(&mut self) -> Token {
        self.asked_at = self.clock.now();
        let token = Token::random(None);
        if self.granted(self.all(), &Op::acquire(RESOURCE.as_bytes(), token.clone(), PX)).await > 1
        {
            return token;
        }
        self.release(&token).await;
        loop {
            if let Some(token) = self.enter().await {
                return token;
            }
            // A push would come no later.
            sleep(ms(2)).await;
        }
    }

    async fn enter(&self) -> Option<Token> {
        let token = Token::random(None);
        let waited = self.clock.now().saturating_since(self.asked_at).as_micros();
        let entry = Entry {
            queue: self.queue.clone(),
            ask: Some((token.clone(), PX)),
            waited_us: waited as u64,
            reservation_ms: 50,
        };
        let enter = Op::enter(RESOURCE.as_bytes(), entry, None);
        if self.granted([self.at], &enter).await == 0 {
            return None;
        }
        let others = || self.all().filter(|master| *master != self.at);
        let take = Op::take(RESOURCE.as_bytes(), token.clone(), PX, None);
        for _ in 0..5 {
            if self.granted(others(), &take).await > 0 {
                return Some(token);
            }
            sleep(ms(1)).await;
        }
        self.release(&token).await;
        None
    }

    /// A delete on each master: the hold was longer than a second.
    async fn release(&self, token: &Token) {
        self.granted(self.all(), &Op::release(RESOURCE.as_bytes(), token.clone())).await;
    }
}

/// One holds the lock at a time.
async fn work(holders: &AtomicU32) {
    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
    sleep(HOLDS).await;
    holders.fetch_sub(1, Ordering::SeqCst);
}

#[tokio::test(start_paused = true)]
async fn both_revisions_share_the_queue_fairly() {
    for pauses in [ms(30), ms(100)] {
        let (masters, holder) = masters(3);
        let guard = holder.lock(RESOURCE).await.unwrap();
        let (_client, new) = process(&masters, 1);
        let waiting = tokio::spawn(new.lock(RESOURCE).wait_forever().into_future());
        sleep(ms(100)).await;
        // It is farther away than the other one, which would win a race for a free key.
        let far = masters.another_client();
        far.iter().for_each(|master| master.delay(ms(5)..=ms(5), ms(5)..=ms(5)));
        let mut old = Old::new(&far, meeting_point(&masters));
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();

        let holders = AtomicU32::new(0);
        let turns = [AtomicU32::new(0), AtomicU32::new(0)];
        let of_new = async {
            loop {
                let guard = new.lock(RESOURCE).wait_forever().await.unwrap();
                work(&holders).await;
                turns[0].fetch_add(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        };
        let of_old = async {
            loop {
                let token = old.acquire().await;
                work(&holders).await;
                turns[1].fetch_add(1, Ordering::SeqCst);
                old.release(&token).await;
                sleep(pauses).await;
            }
        };
        let rounds = sleep((HOLDS + pauses + ms(100)) * TURNS * 4);
        tokio::select! { () = of_new => {}, () = of_old => {}, () = rounds => {} }
        let turns = turns.map(AtomicU32::into_inner);
        assert!(turns.iter().all(|turns| *turns >= TURNS), "{pauses:?}: {turns:?}");
    }
}
