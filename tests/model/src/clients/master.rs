//! A master: one key, and the queue of the processes that wait for it. The scripts on the queue are
//! those of the simulated masters, which tests compare with the real ones.

use std::time::Duration;

use redlock_core::{Answer, Call, Instant, Op, QueueTicket, Queued, Verb, Verdict};
use redlock_testkit::{Meeting, Tickets, reserve, take};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Master {
    /// The value, and when it expires, in milliseconds.
    key: Option<(Vec<u8>, u64)>,
    pub(crate) tickets: Tickets,
    /// The ticket for which the connection of each process listens.
    pub(crate) listens: Vec<Option<QueueTicket>>,
    /// The processes that are told of the next change of the key.
    pub(crate) watchers: Vec<usize>,
}

/// What follows from a request.
pub(crate) struct Executed {
    pub(crate) answer: Answer,
    pub(crate) calls: Vec<(QueueTicket, Call)>,
    pub(crate) has_changed: bool,
}

/// A master during one script.
struct During<'a> {
    key: &'a mut Option<(Vec<u8>, u64)>,
    listens: &'a [Option<QueueTicket>],
    now: Instant,
    calls: Vec<(QueueTicket, Call)>,
}

impl Master {
    pub(crate) fn new(processes: usize) -> Self {
        Self { listens: vec![None; processes], ..Self::default() }
    }

    /// The connection of a process ends.
    pub(crate) fn cut(&mut self, process: usize) {
        self.listens[process] = None;
        self.watchers.retain(|watcher| *watcher != process);
    }

    /// Removes a key that has expired. Redis keeps it through the whole millisecond.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.key.take_if(|(_, until)| millis(now) > *until);
    }

    pub(crate) fn execute(&mut self, process: usize, op: &Op, now: Instant) -> Executed {
        self.expire(now);
        let before = self.key.clone();
        if let Some(entry) = op.entry() {
            self.listens[process] = Some(entry.queue.ticket());
        }
        let mut tickets = std::mem::take(&mut self.tickets);
        let (key, listens) = (&mut self.key, &self.listens);
        let mut during = During { key, listens, now, calls: Vec::new() };
        let answer = during.answer(op, &mut tickets);
        let calls = during.calls;
        self.tickets = tickets;
        if op.verb() == Verb::Watch && !self.watchers.contains(&process) {
            self.watchers.push(process);
            self.watchers.sort_unstable();
        }
        Executed { answer, calls, has_changed: self.key != before }
    }
}

impl During<'_> {
    fn answer(&mut self, op: &Op, tickets: &mut Tickets) -> Answer {
        let token = String::from_utf8_lossy(op.token()).into_owned();
        let is_ours = self.key.as_ref().is_some_and(|(value, _)| value == op.token());
        match (op.verb(), op.entry(), op.exit()) {
            (_, Some(entry), _) => tickets.enter(self, entry),
            (_, _, Some(exit)) => tickets.leave(self, exit),
            (Verb::Take { px }, ..) => take(self, &token, px),
            (Verb::Reserve { px }, ..) => reserve(self, &token, px),
            (Verb::Acquire { px }, ..) => match self.found() {
                Some(_) => Answer::new(Verdict::HELD),
                None => {
                    self.set(&token, px);
                    Answer::granted()
                }
            },
            (Verb::Extend { px }, ..) if is_ours => {
                self.set(&token, px);
                Answer::granted()
            }
            (Verb::Release, ..) if is_ours => {
                self.delete();
                Answer::granted()
            }
            (Verb::Inspect | Verb::Watch, ..) => match self.found() {
                Some((value, left)) => Answer::held(value.as_deref(), Some(left)),
                None => Answer::new(Verdict::Free),
            },
            (Verb::CountWaiters, ..) => {
                let waiters = tickets.count(self.time_us());
                Answer::granted().with_queued(Queued { waiters, rank: None })
            }
            _ => Answer::new(Verdict::NotOurs),
        }
    }
}

impl Meeting for During<'_> {
    fn found(&self) -> Option<(Option<Vec<u8>>, Duration)> {
        let (value, until) = self.key.as_ref()?;
        Some((Some(value.clone()), Duration::from_millis(until - millis(self.now))))
    }

    fn set(&mut self, value: &str, px: u64) {
        *self.key = Some((value.into(), millis(self.now) + px));
    }

    fn delete(&mut self) {
        *self.key = None;
    }

    fn listens(&self, ticket: QueueTicket) -> bool {
        self.listens.contains(&Some(ticket))
    }

    fn tell(&mut self, ticket: QueueTicket, call: Call) {
        self.calls.push((ticket, call));
    }

    fn time_us(&self) -> i64 {
        i64::try_from(self.now.as_nanos() / 1_000).unwrap_or(i64::MAX)
    }
}

fn millis(now: Instant) -> u64 {
    now.as_nanos() / 1_000_000
}
