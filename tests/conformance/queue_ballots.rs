//! Ballots of clients from a queue: after a reservation, and on masters that lost their ballots.

use redlock_core::admission::Record;
use redlock_core::{Balloted, Entry, Leaving, WhyNot};

use super::ballots::{FLOOR, accepted, at, bid, member, score, unfit};
use super::queues::{RESERVED_MS, Waiter, token};
use super::*;

/// Creates a client of an admitted master, and the next client in its queue.
async fn admitted(backend: &Backend) -> [Waiter; 2] {
    let mut clients = [Waiter::new(backend, 0).await, Waiter::new(backend, 1).await];
    let reply = clients[0].asker.init(&Record::default(), FLOOR, 0).await;
    clients.iter().for_each(|client| client.asker.node.set_admitted(reply.record.run));
    clients[1].asker.read_record().await;
    clients
}

impl Waiter {
    async fn take_fenced(&mut self, of: &str, n: u64) -> Answer {
        self.asker.ask(Op::take(KEY, token(of), LONG, Some(bid(n)))).await
    }

    async fn enter_fenced(&mut self, of: &str, n: u64) -> Answer {
        let (queue, ask) = (self.queue.clone(), Some((token(of), LONG)));
        let entry = Entry { queue, ask, waited_us: 0, reservation_ms: RESERVED_MS };
        let mut answer = self.asker.ask(Op::enter(KEY, entry, Some(bid(n)))).await;
        answer.queued = None;
        answer
    }

    async fn ask_fenced(&mut self, enters: bool, of: &str, n: u64) -> Answer {
        if enters { self.enter_fenced(of, n).await } else { self.take_fenced(of, n).await }
    }
}

/// The ballot is not above that of this number.
fn refused_by(n: u64) -> Answer {
    Answer::new(Verdict::BallotRefused).with_ballot(Balloted::Score(score(n)))
}

/// Trap 20.
#[tokio::test]
async fn reservation_between_leases_keeps_the_first_ballot() {
    let backend = Backend::start().await;
    let [mut a, mut b] = admitted(&backend).await;
    assert_eq!(a.enter_fenced("a", 5).await, accepted());
    b.enter(&token("b")).await;
    a.leave(&token("a"), Leaving::Done).await;
    assert_eq!(b.asker.score(&token("b")).await, at(score(5)));
    assert_eq!(b.enter_fenced("b1", 5).await, refused_by(5), "it is not larger");
    assert_eq!(b.asker.ballot(&token("b1"), 6).await, accepted());

    a.asker.release(&token("b1")).await;
    assert_eq!(a.take_fenced("a2", 7).await, accepted());
    assert_eq!(a.asker.ask(Op::reserve(KEY, token("a2"), RESERVED_MS)).await, Answer::granted());
    assert_eq!(b.take_fenced("b2", 7).await, refused_by(7), "it is not larger");
    assert_eq!(b.asker.ballot(&token("b2"), 8).await, accepted());
}

/// Trap 20: the key is there, and no vote.
#[tokio::test]
async fn take_or_entry_without_the_ballot_set_is_not_accepted() {
    let backend = Backend::start().await;
    let [mut a, _b] = admitted(&backend).await;
    backend.remove_member(member()).await;
    for enters in [false, true] {
        let asked = a.ask_fenced(enters, "a", 5).await;
        assert!(held_by(&token("a"), &a.asker.inspect().await));
        for answer in [asked, a.asker.ballot(&token("a"), 6).await] {
            let balloted = Some(Balloted::NoMember);
            assert!(unfit(WhyNot::Incomplete, balloted, &answer), "{answer:?}");
            assert_eq!(a.asker.event().await, NodeEvent::DataLost);
        }
        a.asker.release(&token("a")).await;
    }
}

/// Trap 20: a copy.
#[tokio::test]
async fn take_or_entry_on_a_non_admitted_master_gets_only_the_key() {
    let backend = Backend::start().await;
    let mut a = Waiter::new(&backend, 0).await;
    for enters in [false, true] {
        let asked = a.ask_fenced(enters, "a", 5).await;
        assert!(unfit(WhyNot::AskedTooEarly, None, &asked), "{asked:?}");
        assert!(held_by(&token("a"), &a.asker.inspect().await));
        a.asker.release(&token("a")).await;
    }
}
