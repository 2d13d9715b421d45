//! Ballots of those that come from a queue: behind a reservation, and on masters that lost theirs.

use redlock_core::admission::Record;
use redlock_core::{Balloted, Entry, Leaving, WhyNot};

use super::ballots::{FLOOR, accepted, at, bid, member, refused, score, unfit};
use super::queues::{RESERVED_MS, Waiter, token};
use super::*;

/// A client of a master that was admitted, and the next one in its queue.
async fn admitted(backend: &Backend) -> [Waiter; 2] {
    let mut clients = [Waiter::new(backend, 0).await, Waiter::new(backend, 1).await];
    let reply = clients[0].asker.init(&Record::default(), FLOOR, 0).await;
    clients.iter().for_each(|client| client.asker.node.set_admitted(reply.record.run));
    clients[1].asker.look().await;
    clients
}

impl Waiter {
    async fn take_fenced(&mut self, of: &str, n: u64) -> Answer {
        self.asker.ask(Op::take(KEY, token(of), LONG, Some(bid(n)))).await
    }

    async fn enter_fenced(&mut self, of: &str, n: u64) -> Answer {
        let (queue, ask) = (self.queue.clone(), Some((token(of), LONG)));
        let entry = Entry { queue, ask, waited_us: 0, reservation_ms: RESERVED_MS };
        let answer = self.asker.ask(Op::enter(KEY, entry, Some(bid(n)))).await;
        Answer { queued: None, ..answer }
    }
}

/// Trap 20.
#[tokio::test]
async fn a_reservation_between_two_leases_leaves_the_ballot_of_the_first() {
    let backend = Backend::start().await;
    let [mut a, mut b] = admitted(&backend).await;
    assert_eq!(a.enter_fenced("a", 5).await, accepted());
    b.enter(&token("b")).await;
    a.leave(&token("a"), Leaving::Done).await;
    assert_eq!(b.asker.score(&token("b")).await, at(score(5)));
    assert_eq!(b.enter_fenced("b1", 5).await, refused(), "it is not larger");
    assert_eq!(b.asker.ballot(&token("b1"), 6).await, accepted());

    let [mut a, mut b] = admitted(&Backend::start().await).await;
    assert_eq!(a.take_fenced("a", 5).await, accepted());
    assert_eq!(a.asker.ask(Op::reserve(KEY, token("a"), RESERVED_MS)).await, Answer::granted());
    assert_eq!(b.take_fenced("b", 4).await, refused());
    assert_eq!(b.asker.ballot(&token("b"), 6).await, accepted());
}

/// Trap 20: the key is there, and no vote.
#[tokio::test]
async fn a_take_or_an_entry_on_a_master_without_the_ballots_is_no_acceptance() {
    let gone = |answer: &Answer| unfit(WhyNot::Incomplete, Some(Balloted::NoMember), answer);
    for enters in [false, true] {
        let backend = Backend::start().await;
        let [mut a, _b] = admitted(&backend).await;
        backend.remove_member(member()).await;
        let asked = if enters { a.enter_fenced("a", 5).await } else { a.take_fenced("a", 5).await };
        assert_eq!(asked, refused());
        assert!(held_by(&token("a"), &a.asker.inspect().await));
        let answer = a.asker.ballot(&token("a"), 6).await;
        assert!(gone(&answer), "{answer:?}");
        assert_eq!(a.asker.event().await, NodeEvent::DataLost);
    }
}

/// Trap 20: a copy.
#[tokio::test]
async fn a_take_or_an_entry_on_a_master_that_was_not_admitted_has_the_key_alone() {
    let early = |answer: &Answer| unfit(WhyNot::AskedTooEarly, None, answer);
    for enters in [false, true] {
        let backend = Backend::start().await;
        let mut a = Waiter::new(&backend, 0).await;
        let asked = if enters { a.enter_fenced("a", 5).await } else { a.take_fenced("a", 5).await };
        assert!(early(&asked), "{asked:?}");
        assert!(held_by(&token("a"), &a.asker.inspect().await));
    }
}
