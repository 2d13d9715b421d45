//! Queues between clients: who is notified, who gets the key, and the entries that remain.

use redlock_core::{
    Call, Entry, Exit, Leaving, QueueTicket, Queued, Reservation, Resource, SharedQueue,
};

use super::*;

pub(super) const RESERVED_MS: u64 = 30_000;

/// One client, with its ticket.
pub(super) struct Waiter {
    pub(super) asker: Asker,
    pub(super) queue: SharedQueue,
}

impl Waiter {
    pub(super) async fn new(backend: &Backend, number: u64) -> Self {
        let queue =
            SharedQueue::new(b"locks:", &Resource::from("orders:42"), QueueTicket::new(number));
        Self { asker: Asker::another(backend).await, queue }
    }

    pub(super) fn entry(&self, ask: Option<&Token>, waited_us: u64) -> Op {
        let ask = ask.map(|token| (token.clone(), LONG));
        let queue = self.queue.clone();
        Op::enter(KEY, Entry { queue, ask, waited_us, reservation_ms: RESERVED_MS }, None)
    }

    pub(super) async fn enter(&mut self, token: &Token) -> Answer {
        self.asker.ask(self.entry(Some(token), 0)).await
    }

    pub(super) async fn stand(&mut self, waited: Duration) -> Answer {
        let waited_us = u64::try_from(waited.as_micros()).unwrap();
        self.asker.ask(self.entry(None, waited_us)).await
    }

    pub(super) fn exit(&self, token: Option<&Token>, gives_up_place: bool, leaving: Leaving) -> Op {
        let (queue, token) = (self.queue.clone(), token.cloned());
        let reservation_ms = RESERVED_MS;
        Op::leave(KEY, Exit { queue, token, gives_up_place, reservation_ms, leaving })
    }

    pub(super) async fn leave(&mut self, token: &Token, leaving: Leaving) -> Answer {
        self.asker.ask(self.exit(Some(token), false, leaving)).await
    }

    pub(super) async fn give_up(&mut self) -> Answer {
        self.asker.ask(self.exit(None, true, Leaving::Undo)).await
    }

    pub(super) async fn take(&mut self, token: &Token) -> Answer {
        self.asker.ask(Op::take(KEY, token.clone(), LONG, None)).await
    }

    pub(super) async fn reserve(&mut self, token: &Token) -> Answer {
        self.asker.ask(Op::reserve(KEY, token.clone(), RESERVED_MS)).await
    }

    pub(super) async fn called(&mut self) -> Call {
        match self.asker.event().await {
            NodeEvent::Called(call, key) if &*key == KEY => call,
            event => panic!("{event:?}"),
        }
    }

    /// Whatever was published before this has come by now.
    pub(super) async fn is_left_alone(&mut self) {
        self.asker.inspect().await;
        assert!(self.asker.events.try_recv().is_err(), "it was called");
    }

    pub(super) async fn value(&mut self) -> Option<String> {
        match self.asker.inspect().await.verdict {
            Verdict::Free => None,
            Verdict::Held { token, .. } => token,
            verdict => panic!("{verdict}"),
        }
    }

    pub(super) async fn waiters(&mut self) -> u32 {
        let answer = self.asker.ask(Op::count_waiters(self.queue.key())).await;
        answer.queued.expect("a count").waiters
    }
}

pub(super) async fn waiters<const N: usize>(backend: &Backend) -> [Waiter; N] {
    let mut waiters = Vec::new();
    for number in 0..N {
        waiters.push(Waiter::new(backend, number as u64).await);
    }
    waiters.try_into().ok().expect("as many as there are numbers")
}

pub(super) fn token(text: &str) -> Token {
    Token::parse(text).unwrap()
}

pub(super) fn granted(others: u32) -> Answer {
    Answer::granted().with_queued(Queued { waiters: others, rank: None })
}

pub(super) fn left_nothing_of_ours(waiters: u32) -> Answer {
    not_ours().with_queued(Queued { waiters, rank: None })
}

pub(super) fn place(answer: &Answer) -> (u32, Option<u32>) {
    let queued = answer.queued.expect("a place");
    (queued.waiters, queued.rank)
}

pub(super) fn reserved_for(waiter: &Waiter) -> Option<String> {
    Some(Reservation { ticket: Some(waiter.queue.ticket()) }.to_string())
}

#[tokio::test]
async fn server_with_all_rights_supports_queues() {
    let backend = Backend::start().await;
    assert_eq!(Asker::new(&backend).await.facts.no_queue, None);
}

#[tokio::test]
async fn first_entry_gets_the_key_and_later_ones_a_place() {
    let backend = Backend::start().await;
    let [mut a, mut b, mut c] = waiters(&backend).await;
    assert_eq!(a.enter(&token("a")).await, granted(0));
    let refused = b.enter(&token("b")).await;
    assert!(held_by(&token("a"), &refused));
    assert!(holder(&refused).1 > Some(Duration::from_millis(LONG - 10_000)));
    assert_eq!(place(&refused), (1, Some(0)));
    assert_eq!(place(&c.enter(&token("c")).await), (2, Some(1)));
    let renewed = b.stand(Duration::from_secs(10)).await;
    assert_eq!(place(&renewed), (2, Some(0)), "a place is renewed");
    assert_eq!(a.waiters().await, 2);
}

#[tokio::test]
async fn release_reserves_the_key_and_calls_the_next_two() {
    let backend = Backend::start().await;
    let [mut a, mut b, mut c] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    c.enter(&token("c")).await;
    assert_eq!(a.leave(&token("a"), Leaving::Done).await, granted(2));
    assert_eq!((b.called().await, c.called().await), (Call::Go, Call::Next));
    assert_eq!(a.value().await, reserved_for(&b));
    let reserved = a.asker.inspect().await.verdict;
    assert_eq!(reserved.reservation(), Some(Reservation { ticket: Some(b.queue.ticket()) }));

    assert_eq!(a.asker.acquire(&token("plain"), LONG).await, taken());
    let refused = c.enter(&token("c2")).await;
    assert_eq!(
        (refused.verdict.reservation(), place(&refused)),
        (reserved.reservation(), (1, Some(0)))
    );
    assert_eq!(b.enter(&token("b2")).await, granted(1));
    assert_eq!(a.value().await.as_deref(), Some("b2"));
}

#[tokio::test]
async fn release_without_waiters_reserves_nothing() {
    let backend = Backend::start().await;
    let [mut a, mut b] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    a.leave(&token("a"), Leaving::Done).await;
    assert_eq!(b.enter(&token("b2")).await, granted(0));
    assert_eq!(b.leave(&token("b2"), Leaving::Done).await, granted(0), "trap 13");
    assert_eq!((b.value().await, b.waiters().await), (None, 0));
    assert_eq!(b.leave(&token("b2"), Leaving::Done).await, left_nothing_of_ours(0));
}

#[tokio::test]
async fn open_release_frees_the_key_and_lets_the_first_try() {
    let backend = Backend::start().await;
    let [mut a, mut b, mut c] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    c.enter(&token("c")).await;
    assert_eq!(a.leave(&token("a"), Leaving::Open).await, granted(2));
    assert_eq!(b.called().await, Call::Try);
    c.is_left_alone().await;
    assert_eq!(a.value().await, None);
}

#[tokio::test]
async fn clean_up_of_a_lost_attempt_wakes_waiters_only_if_free() {
    let backend = Backend::start().await;
    let [mut a, mut b, mut c] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.stand(Duration::ZERO).await;
    assert_eq!(c.leave(&token("c"), Leaving::Undo).await, left_nothing_of_ours(1));
    b.is_left_alone().await;
    assert_eq!(c.leave(&token("c"), Leaving::Done).await, left_nothing_of_ours(1));
    assert_eq!(b.called().await, Call::Try, "a lease is over, and another token is there");
    a.asker.release(&token("a")).await;
    assert_eq!(c.leave(&token("c"), Leaving::Undo).await, left_nothing_of_ours(1));
    assert_eq!((b.called().await, c.value().await), (Call::Go, reserved_for(&b)), "trap 8");
}

#[tokio::test]
async fn waiter_giving_up_after_its_call_passes_on_the_key() {
    let backend = Backend::start().await;
    let [mut a, mut b, mut c] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    c.enter(&token("c")).await;
    a.leave(&token("a"), Leaving::Done).await;
    assert_eq!(b.called().await, Call::Go);
    assert_eq!(b.give_up().await, left_nothing_of_ours(1));
    assert_eq!((c.called().await, c.called().await), (Call::Next, Call::Go), "trap 7");
    assert_eq!(c.value().await, reserved_for(&c));
    assert_eq!(c.give_up().await, left_nothing_of_ours(0));
    assert_eq!((c.value().await, c.waiters().await), (None, 0), "no waiter is left");
}

#[tokio::test]
async fn giving_up_a_place_keeps_another_reservation() {
    let backend = Backend::start().await;
    let [mut a, mut b, mut c] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    c.enter(&token("c")).await;
    a.leave(&token("a"), Leaving::Done).await;
    assert_eq!(c.give_up().await, left_nothing_of_ours(0));
    assert_eq!(c.value().await, reserved_for(&b));
}

/// Only the first waiter watches the key, and a holder that knows of no waiter notifies none.
#[tokio::test]
async fn second_waiter_is_told_when_the_first_gives_up() {
    let backend = Backend::start().await;
    let [mut a, mut b, mut c, mut d] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    c.enter(&token("c")).await;
    d.enter(&token("d")).await;
    assert_eq!(c.give_up().await, left_nothing_of_ours(2));
    b.is_left_alone().await;
    d.is_left_alone().await;
    assert_eq!(b.give_up().await, left_nothing_of_ours(1));
    assert_eq!((d.called().await, d.value().await.as_deref()), (Call::Try, Some("a")));

    d.stand(Duration::from_secs(10)).await;
    c.stand(Duration::from_secs(5)).await;
    assert_eq!(a.leave(&token("a"), Leaving::Done).await, granted(2));
    assert_eq!((d.called().await, c.called().await), (Call::Go, Call::Next));
    b.stand(Duration::ZERO).await;
    assert_eq!(c.give_up().await, left_nothing_of_ours(1));
    assert_eq!((b.called().await, b.value().await), (Call::Next, reserved_for(&d)));
}

#[tokio::test]
async fn departed_waiters_are_skipped_in_the_same_script() {
    let backend = Backend::start().await;
    let [mut a, mut b, mut c] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    c.enter(&token("c")).await;
    let channel = b.queue.channel();
    drop(b);
    backend.until_deserted(&channel).await;
    while a.waiters().await == 2 {
        backend.pass(Duration::from_millis(20)).await;
        a.asker.release(&token("a")).await;
        a.leave(&token("none"), Leaving::Done).await;
    }
    assert_eq!(c.called().await, Call::Go, "trap 6");
}

#[tokio::test]
async fn longest_waiter_is_first_regardless_of_entry() {
    let backend = Backend::start().await;
    let [mut a, mut b, mut c] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.stand(Duration::from_secs(5)).await;
    assert_eq!(place(&c.stand(Duration::from_secs(3_600)).await), (2, Some(0)));
    a.asker.release(&token("a")).await;
    assert_eq!(place(&b.stand(Duration::from_secs(5)).await), (1, Some(0)), "the key was free");
    assert_eq!((c.called().await, c.value().await), (Call::Go, reserved_for(&c)));
}

#[tokio::test]
async fn first_waiter_takes_a_free_key() {
    let backend = Backend::start().await;
    let [mut a, mut b] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    a.asker.release(&token("a")).await;
    let free = b.stand(Duration::ZERO).await;
    assert_eq!((free.verdict.clone(), place(&free)), (Verdict::Free, (1, Some(0))));
    assert_eq!(b.enter(&token("b2")).await, granted(0));
}

#[tokio::test]
async fn a_queue_is_gone_three_seconds_after_the_last_entry() {
    let backend = Backend::start().await;
    let [mut a, mut b] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    backend.pass(Duration::from_millis(1_500)).await;
    assert_eq!(a.waiters().await, 1, "trap 18");
    backend.pass(Duration::from_millis(1_600)).await;
    assert_eq!(a.waiters().await, 0);
    assert_eq!(a.leave(&token("a"), Leaving::Done).await, granted(0));
}

#[tokio::test]
async fn client_hears_its_own_call() {
    let backend = Backend::start().await;
    let [mut a] = waiters(&backend).await;
    a.enter(&token("a")).await;
    a.stand(Duration::ZERO).await;
    assert_eq!(a.leave(&token("a"), Leaving::Done).await, granted(1));
    assert_eq!(a.called().await, Call::Go, "trap 14: before or after the reply");
    let ours = a.stand(Duration::ZERO).await;
    assert_eq!(
        (ours.verdict.reservation().and_then(|r| r.ticket), place(&ours)),
        (Some(a.queue.ticket()), (0, None))
    );
}

#[tokio::test]
async fn calls_and_entries_are_not_watches() {
    let backend = Backend::start().await;
    let [mut a, mut b] = waiters(&backend).await;
    a.enter(&token("a")).await;
    b.enter(&token("b")).await;
    backend.put(KEY, b"c", LONG).await;
    b.is_left_alone().await;
    assert!(held_by(&token("c"), &b.asker.ask(Op::watch(KEY)).await));
    assert_eq!(a.asker.release(&token("c")).await, Answer::granted());
    assert_eq!(b.asker.event().await, NodeEvent::KeyChanged(KEY.into()));
}
