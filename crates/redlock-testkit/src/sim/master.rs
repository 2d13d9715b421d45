//! `Master`: what the simulated server does with a request, as the real one's scripts do it.

use std::collections::HashMap;
use std::time::Duration;

use redlock_core::{Answer, Call, Cause, Instant, Op, QueueTicket, Role, Verb, Verdict};

use super::agenda::Audience;
use super::clock::WallClock;
use super::data::Data;
use super::link::Set;
use super::log::{Executed, Log};
use super::tickets::Tickets;

pub(super) const READONLY: &str = "READONLY You can't write against a read only replica.";
/// The longest part of a value that is shown to a client that does not own it.
const VALUE_MAX: usize = 512;

#[derive(Debug)]
pub(super) struct Master {
    pub(super) clock: WallClock,
    /// With this set, nothing is carried out and every request gets this error.
    pub(super) error: Option<String>,
    /// The executed requests, if the log is enabled.
    pub(super) log: Option<Log>,
    /// Which connections hear of the next change of a key.
    pub(super) watchers: Audience<Vec<u8>>,
    /// Watched keys that have changed and whose change was not pushed yet; `None` for the loss of
    /// all.
    pub(super) changes: Vec<Option<Vec<u8>>>,
    /// Its data of admission.
    pub(super) data: Data,
    /// With this set, every ballot and every question for a score gets this error.
    pub(super) ballot_error: Option<String>,
    /// With this set, every entry and every exit gets this error.
    pub(super) queue_error: Option<String>,
    /// Calls that were published and not passed on yet.
    pub(super) calls: Vec<(QueueTicket, Call, Vec<u8>)>,
    pub(super) queues: HashMap<Vec<u8>, Tickets>,
    keys: HashMap<Vec<u8>, Entry>,
}

/// The data of a simulated master at one moment. Defaults to an empty master.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    keys: HashMap<Vec<u8>, Entry>,
    queues: HashMap<Vec<u8>, Tickets>,
    data: Data,
}

#[derive(Clone, Debug)]
struct Entry {
    /// `None` if the key is not a string.
    value: Option<Vec<u8>>,
    /// Milliseconds on the master's clock.
    expire_at: i64,
}

impl Entry {
    fn is(&self, token: &[u8]) -> bool {
        self.value.as_deref() == Some(token)
    }
}

impl Master {
    pub(super) fn new(now: Instant) -> Self {
        let clock = WallClock::new(now);
        Self {
            clock,
            error: None,
            log: None,
            watchers: Audience::default(),
            changes: Vec::new(),
            data: Data::default(),
            ballot_error: None,
            queue_error: None,
            calls: Vec::new(),
            queues: HashMap::new(),
            keys: HashMap::new(),
        }
    }

    /// `listening` has the tickets whose channels have a listener.
    pub(super) fn execute(
        &mut self,
        now: Instant,
        op: &Op,
        set: Set,
        role: Role,
        listening: &Audience<QueueTicket>,
    ) -> Answer {
        let answer = match &self.error {
            Some(error) => Answer::unknown(Cause::of_error_reply(error.clone())),
            None if role != Role::Master && is_write(op.verb()) => {
                Answer::unknown(Cause::Demoted(READONLY.into()))
            }
            None => self.answer(now, op, set, listening),
        };
        if let Some(log) = &mut self.log {
            log.push(Executed {
                at: now,
                verb: op.verb(),
                key: op.key().to_vec(),
                token: String::from_utf8_lossy(op.token()).into_owned(),
                verdict: answer.verdict.clone(),
            });
        }
        answer
    }

    /// Notes that a key has changed, if anyone wants to know.
    fn changed(&mut self, key: &[u8]) {
        if !self.watchers.of(key).is_empty() {
            self.changes.push(Some(key.to_vec()));
        }
    }

    fn answer(
        &mut self,
        now: Instant,
        op: &Op,
        set: Set,
        listening: &Audience<QueueTicket>,
    ) -> Answer {
        self.expire(now, op.key());
        match op.verb() {
            Verb::Acquire { px } | Verb::GiveBack { px } => {
                let key = self.acquire(now, op, px);
                self.propose(op, set, key)
            }
            Verb::Ballot | Verb::Score => self.propose(op, set, Answer::granted()),
            Verb::Extend { px } => self.extend(now, op, px),
            Verb::Resume { px } => match self.extend(now, op, px) {
                key if key.verdict == Verdict::Granted => self.propose(op, set, key),
                key => key,
            },
            Verb::Release => self.release(op),
            Verb::ReadMark => self.read_mark(now, op),
            Verb::RaiseMark { px } => self.raise_mark(now, op, px),
            Verb::Enter { .. } | Verb::Take { .. } => {
                let key = self.queue(now, op, listening);
                self.propose(op, set, key)
            }
            Verb::Leave { .. } | Verb::Reserve { .. } | Verb::CountWaiters => {
                self.queue(now, op, listening)
            }
            // The world carries it out: it needs to know the link.
            Verb::Admission => Answer::unknown(Cause::ErrorReply("ERR it is about no key".into())),
            Verb::Inspect | Verb::Watch => {
                self.held(now, op.key()).unwrap_or_else(|| Answer::new(Verdict::Free))
            }
        }
    }

    fn acquire(&mut self, now: Instant, op: &Op, px: u64) -> Answer {
        if px == 0 {
            let error = "ERR invalid expire time in 'set' command";
            return Answer::unknown(Cause::ErrorReply(error.into()));
        }
        if self.keys.contains_key(op.key()) {
            return Answer::new(Verdict::HELD);
        }
        self.put(now, op.key(), Some(op.token()), px);
        Answer::granted()
    }

    fn extend(&mut self, now: Instant, op: &Op, px: u64) -> Answer {
        let expire_at = self.deadline(now, px);
        match self.keys.get_mut(op.key()) {
            None => Answer::new(Verdict::NotOurs),
            Some(entry) if entry.is(op.token()) => {
                if entry.expire_at < expire_at {
                    entry.expire_at = expire_at;
                    self.changed(op.key());
                }
                Answer::granted()
            }
            Some(_) => self.held(now, op.key()).unwrap_or_else(|| Answer::new(Verdict::NotOurs)),
        }
    }

    pub(super) fn is_ours(&self, op: &Op) -> bool {
        self.keys.get(op.key()).is_some_and(|entry| entry.is(op.token()))
    }

    fn release(&mut self, op: &Op) -> Answer {
        if self.is_ours(op) {
            self.remove(op.key());
            return Answer::granted();
        }
        Answer::new(Verdict::NotOurs)
    }

    /// The answer with the holder of the key; `None` when it is free.
    fn held(&self, now: Instant, key: &[u8]) -> Option<Answer> {
        let entry = self.keys.get(key)?;
        let value = entry.value.as_ref().map(|value| &value[..value.len().min(VALUE_MAX)]);
        let left = Duration::from_millis(self.left(now, key));
        Some(Answer::held(value, Some(left)))
    }

    /// Returns the value of an existing key. The inner `None` means that it is not a string.
    pub(super) fn value(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.keys.get(key).map(|entry| entry.value.as_deref())
    }

    /// The remaining expiry of a key in milliseconds.
    pub(super) fn left(&self, now: Instant, key: &[u8]) -> u64 {
        let left = |entry: &Entry| entry.expire_at - self.clock.millis(now);
        self.keys.get(key).map_or(0, |entry| left(entry).max(0).unsigned_abs())
    }

    pub(super) fn put(&mut self, now: Instant, key: &[u8], value: Option<&[u8]>, px: u64) {
        let expire_at = self.deadline(now, px);
        self.changed(key);
        self.keys.insert(key.to_vec(), Entry { value: value.map(<[u8]>::to_vec), expire_at });
    }

    pub(super) fn holder(&self, now: Instant, key: &[u8]) -> Option<&[u8]> {
        let entry = self.keys.get(key).filter(|entry| self.alive(now, entry))?;
        entry.value.as_deref()
    }

    pub(super) fn count(&self, now: Instant) -> usize {
        self.keys.values().filter(|entry| self.alive(now, entry)).count()
    }

    pub(super) fn flush(&mut self) {
        self.restore(Snapshot::default());
        self.changes.push(None);
    }

    /// Returns what a copy of the data on disk has now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let Self { keys, queues, data, .. } = self;
        Snapshot { keys: keys.clone(), queues: queues.clone(), data: data.clone() }
    }

    /// Replaces all data.
    pub(super) fn restore(&mut self, snapshot: Snapshot) {
        (self.keys, self.queues) = (snapshot.keys, snapshot.queues);
        self.data = snapshot.data;
    }

    fn expire(&mut self, now: Instant, key: &[u8]) {
        if self.keys.get(key).is_some_and(|entry| !self.alive(now, entry)) {
            self.remove(key);
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        self.keys.remove(key);
        self.changed(key);
    }

    /// Redis keeps a key through the whole millisecond in which it expires.
    fn alive(&self, now: Instant, entry: &Entry) -> bool {
        self.clock.millis(now) <= entry.expire_at
    }

    fn deadline(&self, now: Instant, px: u64) -> i64 {
        self.clock.millis(now).saturating_add_unsigned(px)
    }
}

/// Returns `true` if a replica refuses it.
fn is_write(verb: Verb) -> bool {
    !matches!(verb, Verb::Inspect | Verb::Watch | Verb::ReadMark | Verb::CountWaiters)
}
