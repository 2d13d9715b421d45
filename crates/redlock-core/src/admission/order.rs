//! What one master is asked about its data, beside its locks, and what it answers.

use std::fmt;
use std::sync::Arc;

use super::identity::{Identity, RunId};
use super::record::{Millis, Nonce, Record, Score, Seen};
use crate::{Cause, Facts, Instant, Sink};

/// A request that is not about one lock's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Read who the master is, its TIME, its role and the record, behind everything that was
    /// submitted so far; then count members, as [`Said::Looked`] tells, which is the answer.
    Look,
    /// Read TIME, and which process tells it. Answered with [`Said::Time`].
    Time,
    /// Read the highest score below 2^53 of the set with this identity in its name, or of the set
    /// of clients without quarantine; and behind it all that [`Order::Look`] reads, but the
    /// members. Answered with [`Said::Scores`].
    Scores(Option<Identity>),
    /// Count the members of the set with this identity in its name. Answered with
    /// [`Said::Members`].
    Members(Identity),
    /// Make the ballot set of clients without quarantine, with one member, unless it has that one:
    /// a client that sends no ballots shows by it that it uses the namespace. Answered with
    /// [`Said::Shown`].
    ShowUse,
    /// Answered with [`Said::Script`], as the four that follow.
    Begin(Begin),
    /// See [`Note`].
    Note(Note),
    /// See [`Admit`].
    Admit(Admit),
    /// See [`Init`].
    Init(Init),
    /// See [`Remove`].
    Remove(Remove),
}

/// *Begin*: puts a master into quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Begin {
    /// What was read. Where the record is another by now, nothing is written.
    pub expect: Seen,
    /// The identity that this connection read.
    pub identity: Identity,
    /// The name of the new quarantine.
    pub nonce: Nonce,
    /// The longest TTL that a lock may have had, as far as this client knows. A quarantine that is
    /// under way with a shorter one becomes longer.
    pub max_ttl: Millis,
    /// TIME of this master until which the order may act. A record says nothing of how old it is:
    /// one that is empty may be so before a loss and behind one. Later nothing is written.
    pub until: Millis,
}

/// *Note*: writes down the TIME of other masters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// The quarantine that it belongs to.
    pub nonce: Nonce,
    /// TIME of other masters, by process.
    pub times: Vec<(RunId, Millis)>,
    /// See [`Begin::until`].
    pub until: Millis,
}

/// How a client knows that a quarantine is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// It has known the nonce for the whole length, by its own clock.
    Known,
    /// The clock of another master has gone on by twice the length since its note.
    Noted,
}

/// *Admit*: ends a quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Admit {
    /// The quarantine that is over.
    pub nonce: Nonce,
    /// The identity that this connection read.
    pub identity: Identity,
    /// How the client knows that it is over.
    pub way: Way,
    /// The score that all members get.
    pub floor: Score,
    /// See [`Begin::until`].
    pub until: Millis,
}

/// *Init*: a person states that no lock of a former life is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Init {
    /// What was read. Where the record is another by now, nothing is written.
    pub expect: Seen,
    /// The identity that this connection read.
    pub identity: Identity,
    /// The name of this `init`, where it admits.
    pub nonce: Nonce,
    /// The longest TTL that any client of the namespace may use.
    pub max_ttl: Millis,
    /// Whether `max_ttl` may become smaller: `--again` with a `--max-ttl`.
    pub lower: bool,
    /// What all members get where the master is not admitted.
    pub floor: Score,
    /// What lower members are lifted to where it is.
    pub level: Score,
    /// Whether the ballots of clients without quarantine are taken over, and their set removed:
    /// `--again`. Otherwise nothing is written where they are.
    pub converts: bool,
    /// See [`Begin::until`].
    pub until: Millis,
}

/// *Remove*: what a client without quarantine does to the record of those that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remove {
    /// What was read. Where the record is another by now, nothing is written.
    pub expect: Seen,
    /// None: only a record goes that was never admitted. Given: any record goes, with its ballot
    /// sets, because a person says so; and no member of the set of clients without quarantine is
    /// below this, nor below any score that was found here.
    pub start: Option<Score>,
    /// See [`Begin::until`].
    pub until: Millis,
}

/// What a script answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reply {
    /// What it did.
    pub outcome: Outcome,
    /// TIME of the master, in ms.
    pub time: Millis,
    /// The record as the script left it.
    pub record: Record,
    /// `ZCARD` of the set of `run`.
    pub members: u32,
}

/// What a script did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It wrote, or there was nothing to write.
    Done,
    /// The record is another than the one that was read. Nothing was written.
    Moved,
    /// The TIME of this master says that the quarantine is not over. Nothing was written.
    Early,
    /// Clients without quarantine use this namespace. Nothing was written.
    Mixed,
    /// The floor is not below 2^53. Nothing was written.
    TooLarge,
    /// It came later than it may act. Nothing was written.
    Late,
}

/// What a master answered to an [`Order`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// To [`Order::Look`].
    Looked {
        /// What the server says about itself now.
        facts: Facts,
        /// How many members the set of `run` has; where there is no `run`, and the client has a
        /// quarantine, the set of clients without one. None where the server does not tell,
        /// because the right to `ZCARD` is missing.
        members: Option<u32>,
    },
    /// To [`Order::Time`].
    Time {
        /// The process that told it.
        process: RunId,
        /// Its TIME.
        time: Millis,
    },
    /// To [`Order::Scores`].
    Scores {
        /// None where there is no such set, or no member of it has a score below 2^53.
        highest: Option<Score>,
        /// What the server says about itself, read behind the score.
        facts: Facts,
    },
    /// To [`Order::Members`].
    Members(u32),
    /// To [`Order::ShowUse`].
    Shown,
    /// To [`Order::Begin`], [`Order::Note`], [`Order::Admit`], [`Order::Init`] and
    /// [`Order::Remove`].
    Script(Reply),
}

/// The outcome of an order, with all that is needed to find who gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ordered {
    /// Which master was asked: its place in the list of masters.
    pub master: usize,
    /// Which order it answers, in the numbers of the one who gave it.
    pub ticket: u64,
    /// Our clock when the answer was read, where the node has looked.
    pub read_at: Option<Instant>,
    /// What it said. An error: it is not known whether the order was carried out, unless
    /// [`Cause::is_error_reply`], and then nothing was written that matters: see [`Data`].
    ///
    /// [`Data`]: super::Data
    pub said: Result<Said, Cause>,
}

/// The right to answer one order.
///
/// A slot that is dropped unanswered answers [`Cause::ConnectionClosed`].
pub struct OrderSlot {
    sink: Option<Arc<dyn Sink>>,
    master: usize,
    ticket: u64,
    sent_at: Instant,
}

impl OrderSlot {
    /// A slot for the answer of `master` to the order `ticket`, which is given at `sent_at`.
    pub fn new(sink: Arc<dyn Sink>, master: usize, ticket: u64, sent_at: Instant) -> Self {
        Self { sink: Some(sink), master, ticket, sent_at }
    }

    /// When the order was given, on our clock.
    pub fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// Answers, whether or not anything still waits for it.
    pub fn answer(mut self, said: Result<Said, Cause>) {
        self.deliver(said, None);
    }

    /// The same for an answer that was read at `read_at`, a moment ago.
    pub fn answer_at(mut self, said: Result<Said, Cause>, read_at: Instant) {
        self.deliver(said, Some(read_at));
    }

    fn deliver(&mut self, said: Result<Said, Cause>, read_at: Option<Instant>) {
        if let Some(sink) = self.sink.take() {
            let Self { master, ticket, .. } = *self;
            sink.ordered(Ordered { master, ticket, read_at, said });
        }
    }
}

impl Drop for OrderSlot {
    fn drop(&mut self) {
        self.deliver(Err(Cause::ConnectionClosed), None);
    }
}

impl fmt::Debug for OrderSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderSlot")
            .field("master", &self.master)
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{NodeEvent, Vote};

    #[derive(Default)]
    struct Answers(Mutex<Vec<Ordered>>);

    impl Sink for Answers {
        fn vote(&self, _: Vote) {}
        fn event(&self, _: usize, _: NodeEvent) {}

        fn ordered(&self, ordered: Ordered) {
            self.0.lock().unwrap().push(ordered);
        }
    }

    #[test]
    fn a_slot_answers_once_and_a_dropped_one_answers_that_it_failed() {
        let answers = Arc::new(Answers::default());
        let slot = |ticket| OrderSlot::new(answers.clone(), 3, ticket, Instant::ORIGIN);
        slot(1).answer(Ok(Said::Members(7)));
        drop(slot(2));
        let answers = answers.0.lock().unwrap();
        let found: Vec<_> = answers.iter().map(|ordered| (ordered.ticket, &ordered.said)).collect();
        let closed = Err(Cause::ConnectionClosed);
        assert_eq!(found, [(1, &Ok(Said::Members(7))), (2, &closed)]);
        assert!(answers.iter().all(|ordered| ordered.master == 3));
    }
}
