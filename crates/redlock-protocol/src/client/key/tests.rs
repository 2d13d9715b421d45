//! `Keys` as lists of events, and the news that follow.

mod releases;

use std::fmt::Write as _;

use redlock_core::{Answer, Call, Cause, Key, Queued, Token, Verb, Verdict, Vote};

use super::*;
use crate::client::table::Table;
use crate::lab::{at, ms, timing};
use crate::master_set::MasterSet;
use crate::terms::HoldOptions;
use crate::token::attempt::{Attempt, Defeat, Origin};
use crate::token::lifecycle::Loss;
use crate::waiting::{Ask, Refusal};

/// Three voting masters. Contenders meet at the first one not avoided.
#[derive(Debug)]
struct Masters {
    has_queue: bool,
}

impl Points for Masters {
    fn count(&self) -> usize {
        3
    }

    fn meeting_point(&self, _: &[u8], avoided: MasterSet, _: Instant) -> Option<usize> {
        MasterSet::all(3).without(avoided).iter().next()
    }

    fn may_meet(&self, _: usize, _: Instant) -> bool {
        true
    }

    fn has_queue(&self, _: usize) -> bool {
        self.has_queue
    }

    fn lacks_votes(&self) -> bool {
        false
    }
}

/// One process that uses one key.
struct Process {
    keys: Keys,
    points: Masters,
    callers: Callers,
    requests: Table<RequestId, ()>,
    locks: Table<LockId, ()>,
    timers: Timers,
    now: u64,
    fan_out: Duration,
}

/// A lease of the process.
struct Lease {
    claim: Claim,
    lock: LockId,
}

impl Process {
    fn new(has_queue: bool) -> Self {
        let ticket = QueueTicket::new(7);
        let terms = Terms { prefix: b"p:".to_vec(), ticket, has_queue, seed: 1 };
        Self {
            keys: Keys::new(terms),
            points: Masters { has_queue },
            callers: Callers::default(),
            requests: Table::default(),
            locks: Table::default(),
            timers: Timers::default(),
            now: 1_000,
            fan_out: ms(1),
        }
    }

    /// Passes an input, and returns the news as words.
    fn input(&mut self, input: impl FnOnce(&mut Keys, &mut Context<'_>)) -> String {
        let mut cx = Context {
            now: at(self.now),
            fan_out: self.fan_out,
            is_traced: false,
            draws: Draws::new(1),
            points: &self.points,
            callers: &mut self.callers,
            timers: &mut self.timers,
        };
        input(&mut self.keys, &mut cx);
        let mut words = String::new();
        while let Some(news) = self.keys.next_news() {
            write!(words, " {}", word(&news)).unwrap();
        }
        words.trim_start().to_owned()
    }

    fn caller(&mut self, until: Option<u64>) -> RequestId {
        let id = self.requests.insert(());
        let caller = Caller {
            resource: "k".into(),
            key: key(),
            ttl: None,
            timing: timing(1_000),
            options: HoldOptions::default(),
            label: None,
            asked_at: at(self.now),
            until: until.map(at),
            resume: None,
            key_use: UseId::default(),
            is_attempted: false,
            is_gone: false,
            has_failed: false,
            ask: Ask::All,
        };
        self.callers.insert(id, caller);
        id
    }

    /// A caller wants the key.
    fn ask(&mut self, until: Option<u64>) -> (RequestId, String) {
        let id = self.caller(until);
        let news = self.input(|keys, cx| keys.ask(id, cx));
        (id, news)
    }

    /// The turn of a caller comes. Returns its claim.
    fn attempt(&mut self, id: RequestId) -> Lease {
        let mut meeting = None;
        self.input(|keys, cx| meeting = keys.meets(id, cx).meeting);
        let claim = Claim::new("k".into(), key(), Token::random(None), meeting);
        self.callers[id].is_attempted = true;
        Lease { claim, lock: self.locks.insert(()) }
    }

    /// The attempt of a caller is won.
    fn win(&mut self, id: RequestId) -> Lease {
        let mut lease = self.attempt(id);
        let caller = self.callers.remove(id).unwrap();
        let (now, lock) = (at(self.now), lease.lock);
        self.input(|keys, cx| {
            keys.won(&mut lease.claim, lock, (id, caller.key_use), Some(now), cx);
        });
        lease
    }

    /// The attempt of a caller was refused by all masters.
    fn lose(&mut self, id: RequestId) -> String {
        self.keys.refused(&key(), at(self.now));
        self.input(|keys, cx| keys.wait_on(id, Refusal::Held, None, cx))
    }

    /// A process whose only caller was refused by all masters. It enters the queue next.
    fn refused() -> (Self, RequestId) {
        let mut process = Self::new(true);
        let (first, _) = process.ask(None);
        process.attempt(first);
        process.lose(first);
        (process, first)
    }

    /// The lease ends and its release is in line. Returns the news, and the requests of the
    /// release.
    fn end(&mut self, mut lease: Lease, is_taken: bool) -> (String, String) {
        let news = self.input(|keys, cx| {
            keys.lease_ends((&mut lease.claim, lease.lock), is_taken, |_| true, cx);
            keys.left(&lease.claim, lease.lock, cx);
        });
        (news, requests_of(&mut lease))
    }
}

/// The requests of a release, the others first.
fn requests_of(lease: &mut Lease) -> String {
    let Exits { release, meeting, elsewhere } = lease.claim.take_exits();
    let mut words = format!("{:?}", release.verb());
    let (masters, leave) = elsewhere.unzip();
    let queues = masters.iter().flat_map(|masters| masters.iter()).zip(leave.iter().cycle());
    let meeting = meeting.iter().map(|(at, leave)| (*at, leave));
    for (at, op) in meeting.chain(queues) {
        write!(words, ", {:?} at {at}", op.verb()).unwrap();
    }
    words
}

fn key() -> Key {
    Key::from(&b"p:k"[..])
}

fn word(news: &News) -> String {
    match news {
        News::Line(Outgoing::Attempt(_)) => "attempts".into(),
        News::Line(_) => "queues".into(),
        News::Stands(_) => "stands".into(),
        News::Send(at, op, _) => match (op.verb(), op.exit()) {
            (Verb::Leave { .. }, Some(exit)) if exit.gives_up_place => format!("gives up {at}"),
            (verb, _) => format!("{verb:?} {at}").to_lowercase(),
        },
        News::Explain(callers, ..) => format!("explains {}", callers.len()),
        News::Suspect(at, _) => format!("suspects {at}"),
        News::Cancelled(_) => "cancelled".into(),
        News::Polled => "polls".into(),
        News::Silent(at) => format!("silent {at}"),
        News::Watched | News::Said(..) | News::SaidAt(..) => "-".into(),
    }
}

/// The answer of a master to a process that enters the queue or leaves it.
fn answer(master: usize, verdict: Verdict, waiters: u32, rank: Option<u32>) -> Vote {
    let mut answer = Answer::new(verdict);
    answer.queued = Some(Queued { waiters, rank });
    Vote::new(master, 0, at(0), answer)
}

fn failed(master: usize) -> Vote {
    let answer = Answer::unknown(Cause::ErrorReply("WRONGTYPE".into()));
    Vote::new(master, 0, at(0), answer)
}

#[test]
fn callers_of_one_process_get_the_key_in_order_of_arrival() {
    let mut process = Process::new(true);
    let (first, news) = process.ask(None);
    assert_eq!(news, "stands");
    let (second, news) = process.ask(None);
    assert_eq!(news, "", "the first makes the only attempt");
    let (third, _) = process.ask(None);
    let lease = process.win(first);
    assert_eq!(
        (process.keys.lease(&key()), process.keys.next_here(&key())),
        (Some(lease.lock), Some(second))
    );
    assert_eq!(process.end(lease, true).0, "attempts", "directly after the release");
    assert_eq!(process.keys.next_here(&key()), None, "the second makes an attempt");
    let lease = process.win(second);
    assert_eq!(process.keys.next_here(&key()), Some(third));
    process.end(lease, true);
    assert!(process.keys.lease(&key()).is_none());
}

#[test]
fn leaving_caller_passes_on_its_turn() {
    let mut process = Process::new(true);
    let (first, _) = process.ask(None);
    let (second, _) = process.ask(None);
    let lease = process.win(first);
    assert_eq!(process.input(|keys, cx| keys.withdrawn(second, cx)), "cancelled");
    assert_eq!(process.end(lease, true).0, "");
    let (third, news) = process.ask(None);
    assert_eq!(news, "stands", "no other caller is left");
    process.attempt(third);
    assert_eq!(process.ask(None).1, "");
    assert_eq!(process.input(|keys, cx| keys.withdrawn(third, cx)), "", "its attempt ends first");
    assert!(process.callers[third].is_gone);
    assert_eq!(process.input(|keys, cx| keys.cancelled(third, cx)), "cancelled attempts");
}

#[test]
fn a_process_without_callers_gives_up_its_place() {
    let mut process = Process::new(true);
    let (first, _) = process.ask(None);
    process.attempt(first);
    assert_eq!(process.lose(first), "attempts", "at the meeting point");
    let mut lease = process.attempt(first);
    assert_eq!(lease.claim.meeting().map(|meeting| meeting.at), Some(0));
    let vote = answer(0, Verdict::HELD, 2, Some(1));
    process.input(|keys, cx| keys.entered((&mut lease.claim, lease.lock), false, &vote, cx));
    let (refusal, told) = lease.claim.refusal(&loss());
    assert_eq!(process.input(|keys, cx| keys.wait_on(first, refusal, told, cx)), "", "it sleeps");
    assert_eq!(process.input(|keys, cx| keys.withdrawn(first, cx)), "cancelled gives up 0");
}

fn loss() -> Loss {
    Loss {
        defeat: Defeat::Outvoted,
        refusal: Refusal::Held,
        answers: Vec::new(),
        fan_out: None,
        silent_first: None,
        is_let_in: false,
        is_without_quorum: false,
        is_explicable: false,
    }
}

#[test]
fn a_call_without_a_waiting_caller_is_passed_on() {
    let mut process = Process::new(true);
    assert_eq!(process.input(|keys, cx| keys.called(2, Call::Go, &key(), cx)), "gives up 2");
    assert_eq!(process.input(|keys, cx| keys.called(2, Call::Next, &key(), cx)), "");
}

/// They may be reserved for it, as the key was at the meeting point.
#[test]
fn attempt_takes_reserved_keys_after_the_meeting_point_granted() {
    let (mut process, first) = Process::refused();
    process.attempt(first);
    process.callers[first].ask = Ask::All;
    let mut lease = process.attempt(first);
    let attempt = Attempt::new(3, Origin::Acquired, timing(1_000), HoldOptions::default(), at(0));
    let others = (MasterSet::from_iter([1, 2]), MasterSet::EMPTY);
    let verb = |lease: &Lease| {
        let [_, others, _] = lease.claim.attempt_ops(&attempt, others, None);
        others.unwrap().0.verb()
    };
    assert!(matches!(verb(&lease), Verb::Acquire { .. }));
    let vote = answer(0, Verdict::Granted, 0, None);
    process.input(|keys, cx| keys.entered((&mut lease.claim, lease.lock), false, &vote, cx));
    assert!(matches!(verb(&lease), Verb::Take { .. }));
}

#[test]
fn failing_queue_is_avoided_for_a_second() {
    let (mut process, first) = Process::refused();
    let mut lease = process.attempt(first);
    let vote = failed(0);
    process.input(|keys, cx| keys.entered((&mut lease.claim, lease.lock), false, &vote, cx));
    assert!(lease.claim.has_queue_failed() && lease.claim.is_of_queue(&vote));
    let (refusal, told) = lease.claim.refusal(&loss());
    assert_eq!(process.input(|keys, cx| keys.wait_on(first, refusal, told, cx)), "attempts");
    let meets = |process: &mut Process| process.attempt(first).claim.meeting().map(|it| it.at);
    assert_eq!(meets(&mut process), Some(1));
    process.now += 1_001;
    assert_eq!(meets(&mut process), Some(0), "a process returns to the common meeting point");
}

#[test]
fn callers_past_their_wait_share_a_query_after_a_last_attempt() {
    let mut process = Process::new(true);
    let (holder, _) = process.ask(None);
    let callers = [(); 3].map(|()| process.ask(Some(2_000)).0);
    process.win(holder);
    process.now = 2_000;
    let over = |process: &mut Process, id| process.input(|keys, cx| keys.wait_over(id, cx));
    assert_eq!(over(&mut process, callers[0]), "stands");
    assert_eq!([over(&mut process, callers[1]), over(&mut process, callers[2])], ["explains 1"; 2]);
}

/// A late client sees the ends of all waits after the loss of an attempt. The queue is gone
/// before anything follows.
#[test]
fn callers_past_their_wait_share_a_query_after_a_lost_attempt() {
    let mut process = Process::new(true);
    let (first, _) = process.ask(Some(1_010));
    (0..3).for_each(|_| drop(process.ask(Some(1_010))));
    process.attempt(first);
    process.now = 2_000;
    process.keys.refused(&key(), at(process.now));
    assert_eq!(process.input(|keys, cx| keys.answered(first, &key(), cx)), "explains 3");
}

#[test]
fn slow_meeting_point_is_briefly_avoided() {
    let (mut process, first) = Process::refused();
    let mut lease = process.attempt(first);
    let silent = |process: &mut Process, lease: &mut Lease, is_lease| {
        process.input(|keys, cx| keys.silent((&mut lease.claim, lease.lock), is_lease, cx))
    };
    assert_eq!(silent(&mut process, &mut lease, false), "suspects 0");
    assert_eq!(silent(&mut process, &mut lease, true), "gives up 0 suspects 0");
}

#[test]
fn shutdown_gives_up_each_place() {
    let (mut process, first) = Process::refused();
    process.attempt(first);
    assert_eq!(process.input(Keys::give_up_places), "gives up 0");
    process.keys.clear();
    assert_eq!(process.input(Keys::give_up_places), "");
}
