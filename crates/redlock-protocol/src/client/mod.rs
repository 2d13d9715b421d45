//! `Client`: one client, pure, made of four parts.
//!
//! The client gets one [`Input`] at a time, with the [`Moment`], and
//! returns [`Effects`]. It routes each input and each outcome between its parts,
//! which do not know each other: each has private fields, takes inputs with the current instant, and
//! returns the consequences.
//!
//! A shell drives it like this, in one turn after the other:
//!
//! 1. Each request of a caller is one input. The shell has a table of callers, and names
//!    the caller by an id from it until the return. After each input the effects are carried out in
//!    order.
//! 2. Each vote and each event of a connection is one input, in the order in which they came. The
//!    votes of a connection come before its *Down*.
//! 3. `Turn` moves the line. Then the collected requests are handed to the masters, and the links
//!    are polled. Links of [`First`](effects::Effect::First) are first. The votes of one link are
//!    handled before the next one is polled.
//! 4. New requests, votes and events are inputs again. Then `Alarms` fires the alarms.
//! 5. The shell sleeps until the next input, or [`next_due`](Client::next_due), unless
//!    [`wants_turn`](effects::Effects::wants_turn).
//!
//! In reading order: `ids` (the entries of a client, and the mapping from votes to requests),
//! `table`, `callers`, `input`, `moment`, `effects`, `counts`, `terms`; `line` (requests that wait for
//! their turn), `timers`, `draws` (random choices), `derived`, `common`, `context`, `view`, `sending`; the
//! parts `masters`, `key`, `locks` and `questions`; and the routes: `parts` (inputs of one part, and
//! what follows), `alarms`, `acquiring` (from a request to a lease), `returning` (from a lease to its
//! release), `starting`, `closing` and `ending`.

mod acquiring;
mod alarms;
mod asking;
pub mod callers;
mod closing;
mod common;
pub mod context;
pub mod counts;
pub mod derived;
pub mod draws;
pub mod effects;
mod ending;
pub mod ids;
pub mod input;
pub mod key;
pub mod line;
pub mod locks;
pub mod masters;
pub mod moment;
mod parts;
pub mod questions;
mod returning;
mod sending;
mod starting;
pub mod table;
pub mod terms;
#[cfg(test)]
mod tests;
pub mod timers;
pub mod view;

use std::time::Duration;

use redlock_core::admission::AdmissionReply;
use redlock_core::{Instant, NodeEvent, Verdict, Vote};

use self::asking::Asking;
use self::closing::Closing;
use self::common::Common;
use self::counts::Count;
use self::derived::Derived;
use self::effects::{Effect, Effects, Said, What};
use self::ids::{Asker, LockId, RequestId, Ticket};
use self::input::{Input, Returned};
use self::key::Keys;
use self::line::Outgoing;
use self::locks::Locks;
pub use self::locks::{KeyLeft, Remains};
use self::masters::Masters;
use self::moment::Moment;
use self::questions::Questions;
use self::starting::{Early, Start};
use self::terms::Terms;
use self::timers::Due;
use self::view::Voters;
use crate::master_set::MasterSet;
use crate::token::lifecycle::{Answered, Asked, Event};
use crate::votes::answer::{Counts, Judged};

/// One client.
///
/// Each table is bounded by the callers' requests and locks, by the line (1,000,000 entries), and
/// by the releases that a master may leave unacknowledged (10,000).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// Whether a released lock passes to the next caller of this process.
    hands_over: bool,
    masters: Masters,
    keys: Keys,
    locks: Locks,
    questions: Asking,
    common: Common,
    start: Start,
    /// Requests that wait for the first connections.
    early: Vec<Early>,
    closing: Option<Closing>,
    /// A buffer that is used again.
    news: Derived<Vec<masters::News>>,
}

/// The context of an input.
struct At<'a> {
    now: Instant,
    moment: &'a mut dyn Moment,
    effects: &'a mut Effects,
}

impl Client {
    /// Creates a client that nothing drives yet.
    pub fn new(terms: Terms) -> Self {
        let locks = locks::Terms {
            masters: terms.names.iter().count(),
            limits: terms.limits,
            fencing: terms.fencing,
        };
        Self {
            hands_over: terms.hand_over,
            masters: Masters::new(terms.masters()),
            keys: Keys::new(terms.keys()),
            locks: Locks::new(locks),
            questions: Asking::new(Questions::new(terms.questions())),
            common: Common::new(terms.limits, terms.draws()),
            start: Start::Parked,
            early: Vec::new(),
            closing: None,
            news: Derived::default(),
        }
    }

    /// Handles one input. Votes that are known without a request are counted before it returns.
    pub fn handle(&mut self, input: Input<'_>, moment: &mut dyn Moment, effects: &mut Effects) {
        let now = match &input {
            Input::Vote(Vote { read_at: Some(read_at), .. }) => *read_at,
            _ => moment.now(),
        };
        effects.now = now;
        let at = &mut At { now, moment, effects };
        self.input(input, at);
        self.settle(at);
    }

    fn input(&mut self, input: Input<'_>, at: &mut At<'_>) {
        match input {
            Input::Vote(vote) => self.vote(vote, at),
            Input::Event(master, event) => self.event(master, event, at),
            Input::Turn => self.advance_line(at),
            Input::Alarms { seen } => {
                self.fire(seen, at);
                at.effects.wants_turn =
                    self.start.lets_pass(&mut self.common, &mut self.masters, at);
            }
            Input::Acquire(id, caller) => self.acquire(id, caller, at),
            Input::Withdrawn(id) => {
                self.with_keys(at, |keys, cx| keys.withdrawn(id, cx));
                if let Some(closing) = &mut self.closing {
                    closing.withdrawn(id);
                }
            }
            // A lease that was passed on passes to the next caller.
            Input::Untaken(hold) => {
                if let Some(id) = self.locks.held_by(hold)
                    && (hold.hand_overs == 0 || !self.hand_on(id, at))
                {
                    self.with_locks(at, |locks, cx| locks.happens(id, Event::Untaken, cx));
                }
            }
            Input::Accepted(hold) => {
                if let Some(id) = self.locks.held_by(hold) {
                    self.with_locks(at, |locks, cx| locks.schedule(id, cx));
                }
            }
            Input::Extend(hold, ttl, reply) => {
                self.early(Early::Extend(hold, ttl, reply), at);
            }
            Input::Keep(hold) => self.holder_wants(hold, Event::Kept, at),
            Input::Forget(hold) => self.holder_wants(hold, Event::GivenAway, at),
            Input::Returned(returned) => self.returned(returned, at),
            Input::ReleaseToken(token, reply) => {
                let id = self.with_locks(at, |locks, cx| locks.release_token(*token, reply, cx));
                self.with_claim(id, at, |keys, (claim, _), cx| keys.leave_token(claim, cx));
                self.with_locks(at, |locks, cx| locks.stand_in_line(id, cx));
            }
            Input::Inspect(inspect, reply) => {
                self.questions.inspect(*inspect, reply, &self.masters, &mut self.common);
            }
            Input::Observe { key, node_timeout, is_look, reply } => {
                at.effects.count(Count::Observation);
                let (observed, common) = ((key, node_timeout, is_look), &mut self.common);
                self.questions.observe(observed, reply, &self.masters, common, at.now);
            }
            Input::Init(order, reply) => self.with_questions(at, |questions, view, cx| {
                questions.await_init(reply);
                questions.all.init(order, view, cx);
            }),
            Input::Report(reply) => self.early(Early::Report(reply), at),
            Input::Close(within, reply) => self.close(within, reply, at),
            Input::Connect => self.connect(at),
            Input::Dismiss => self.dismiss(at),
            Input::Disconnect => {
                self.with_masters(at, Masters::disconnect);
                if self.start == Start::Parked {
                    self.masters.park();
                    self.questions.clear();
                }
            }
            Input::Park => {
                self.common.line.clear();
                self.common.timers.clear();
                self.locks.park();
            }
        }
    }

    /// Counts the votes that are known without a request. It ends each input, so that no machine
    /// is entered while it waits for another.
    #[inline]
    fn settle(&mut self, at: &mut At<'_>) {
        while let Some(vote) = self.common.known.pop_front() {
            at.now = vote.read_at.unwrap_or_else(|| at.moment.now());
            self.vote(&vote, at);
        }
    }

    /// The answer of a master.
    fn vote(&mut self, vote: &Vote, at: &mut At<'_>) {
        let (now, ticket) = (at.now, Ticket::unpack(vote.ticket));
        if let Ticket::Admission(asker) = ticket {
            return self.admission_vote(asker, vote, at);
        }
        if !matches!(vote.answer.verdict, Verdict::Unknown(_)) {
            self.masters.heard(vote.master);
        }
        let counts = self.masters.counts(vote, now);
        at.effects.count_vote(vote.master, &counts.apply(&vote.answer.verdict));
        if at.effects.is_traced {
            self.trace_vote(ticket, vote, at);
        }
        if counts == Counts::Yes && vote.answer.balloted.is_some() {
            self.with_locks(at, |locks, cx| locks.learn_score(ticket, vote, cx));
        }
        let judged = Judged { answer: &vote.answer, counts: &counts };
        let of = |asked| Answered::of(asked, vote, judged);
        match ticket {
            Ticket::Admission(_) => {}
            Ticket::Attempt(lock) => self.attempt_vote(lock, vote, &counts, at),
            Ticket::Ballot(lock, number) => {
                self.with_locks(at, |locks, cx| locks.answered(lock, of(Asked::Ballot(number)), cx))
            }
            Ticket::Score(lock) => {
                self.with_locks(at, |locks, cx| locks.answered(lock, of(Asked::Score), cx));
            }
            Ticket::Extension(lock, number) => self.with_locks(at, |locks, cx| {
                locks.extension_answered(lock, number, vote, judged, cx);
            }),
            Ticket::Readd(lock) => {
                self.with_locks(at, |locks, cx| locks.answered(lock, of(Asked::Readd), cx));
            }
            Ticket::Release(lock) | Ticket::Exit(lock) => {
                if vote.answer.queued.is_some() {
                    self.with_claim(lock, at, |keys, (claim, _), cx| {
                        keys.left_queue(claim, vote, cx);
                    });
                }
                if let Ticket::Release(_) = ticket {
                    let elsewhere = self.masters.elsewhere(vote.master).map(Counts::Not);
                    let judged = Judged { counts: elsewhere.as_ref().unwrap_or(&counts), ..judged };
                    self.with_locks(at, |locks, cx| locks.release_answered(lock, vote, judged, cx));
                }
            }
            Ticket::Inspection(id) => {
                if let Verdict::Held { ttl: Some(ttl), .. } = vote.answer.verdict
                    && ttl > self.common.limits.expiry_max(self.masters.max_ttl())
                    && self.questions.all.contains(id)
                {
                    at.effects.say(Said::LivesTooLong(vote.master));
                }
                self.with_questions(at, |questions, masters, cx| {
                    questions.all.vote(id, vote, &counts, masters, cx);
                });
            }
            Ticket::Watch(waiting, number) => {
                self.with_keys(at, |keys, cx| keys.watched((waiting, number), vote, cx));
            }
            Ticket::Place(waiting, number) => {
                self.with_keys(at, |keys, cx| keys.placed((waiting, number), vote, cx));
            }
        }
    }

    /// The answer of a master to an attempt, in time or late.
    fn attempt_vote(&mut self, id: LockId, vote: &Vote, counts: &Counts, at: &mut At<'_>) {
        let answer = &locks::refusal_of(&vote.answer);
        let judged = Judged { answer, counts };
        let lock = self.locks.get(id);
        let explains = lock.and_then(locks::Lock::explains);
        if lock.is_some_and(|lock| lock.claim.meeting().is_some()) {
            self.with_claim(id, at, |keys, (claim, is_lease), cx| {
                keys.entered((claim, id), is_lease, vote, cx);
            });
        }
        if let Some(inspection) = explains {
            let latency = at.now.saturating_since(vote.sent_at);
            self.questions.all.late_vote(inspection, vote.master, judged, latency);
        }
        self.with_locks(at, |locks, cx| locks.attempt_answered(id, vote, judged, cx));
    }

    /// The answer of a master to a request about admission.
    fn admission_vote(&mut self, asker: Asker, vote: &Vote, at: &mut At<'_>) {
        let (master, said) = (vote.master, vote.answer.clone().into_admission());
        self.with_masters(at, |masters, cx| masters.told(asker, master, &said, cx));
        match asker {
            Asker::Init(number) if self.questions.all.is_current(number) => {
                match &said {
                    Ok(AdmissionReply::Script(reply)) => {
                        let reply = reply.clone();
                        self.with_masters(at, |masters, cx| masters.ordered(master, reply, cx));
                    }
                    Ok(_) => {}
                    Err(cause) => self.masters.step_failed(master, cause, at.now),
                }
                self.with_questions(at, |questions, masters, cx| {
                    questions.all.init_answered(master, said, masters, cx);
                });
            }
            Asker::Report(number) => self.with_questions(at, |questions, view, cx| {
                questions.all.report_answered(number, master, said, view, cx);
            }),
            Asker::Init(_) | Asker::Step(..) | Asker::Fresh => {}
        }
        self.with_masters(at, Masters::advance);
    }

    /// Something has happened to the connection to a master.
    fn event(&mut self, master: usize, event: NodeEvent, at: &mut At<'_>) {
        if let NodeEvent::KeyChanged(_) | NodeEvent::DataLost = event {
            at.effects.count(Count::Push);
        }
        match event {
            // The only frequent event: it does not concern the state of the master.
            NodeEvent::KeyChanged(key) => {
                self.with_keys(at, |keys, cx| keys.changed(master, &key, cx));
            }
            NodeEvent::Called(call, key) => {
                self.with_keys(at, |keys, cx| keys.called(master, call, &key, cx));
            }
            event => {
                self.with_masters(at, |masters, cx| masters.event(master, event, cx));
                let begun = self.start.consider(&self.masters, || at.moment.now());
                self.begin(begun, at);
                self.with_questions(at, |questions, view, cx| questions.all.consider(view, cx));
            }
        }
    }

    /// Returns the tokens.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Returns the number of callers without an answer.
    pub fn waiting(&self) -> usize {
        self.common.callers.len()
    }

    /// Returns `true` if requests in flight show that callers come several at a time.
    pub fn is_busy(&self) -> bool {
        self.common.line.is_busy()
    }
}
