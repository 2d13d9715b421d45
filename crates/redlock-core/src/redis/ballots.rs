//! Requests with a ballot or a score: how they are written, and how their replies become one
//! answer. See rule F5 of `docs/PROTOCOL.md`.
//!
//! Each is several plain commands in one write:
//!
//! | | |
//! |---|---|
//! | acquire | `SET key token NX PX px`, `ZADD set XX GT CH ballot member`, `GET key` |
//! | ballot | `ZADD set XX GT CH ballot member`, `ZSCORE set member`, `GET key` |
//! | score | `ZSCORE set member` |
//! | give back | `SET key token NX PX px`, `ZSCORE set member` |
//! | enter, take | the script of [`queues`](super::queues), `ZADD set XX GT CH ballot member`, `ZSCORE set member`, `GET key` |
//!
//! A client that enters a queue or takes a key comes soon after the previous holder, whose clock is
//! often ahead. The score shows by how much the client's ballots must be ahead, and so spares it a
//! second refusal.
//!
//! A resume is a single script instead, because its ballot must not raise anything if the key is
//! not ours.
//!
//! All masters get the same bytes except for the name of the set.

use redis::Value;

use super::encode;
use super::namespace::Set;
use super::reply::{self, Plain};
use super::resp::{self, Garbage, behind, behind_value};
use crate::admission::SCORE_END;
use crate::packed::{Packed, Room};
use crate::{Answer, Balloted, Bid, Cause, NotAdmitted, Op, Verb, Verdict, WhyNot};

/// Appends the commands of `op` to `out`.
///
/// If the first command is a script that the connection has not loaded, `text` is its call with the
/// text.
pub(super) fn write(set: &Set, op: &Op, text: Option<&[u8]>, out: &mut Vec<u8>) {
    let (first, second): (&[u8], &[u8]) = match op.verb() {
        Verb::Acquire { .. } | Verb::Enter { .. } | Verb::Take { .. } => (b"", &set.raise),
        Verb::Ballot => (&set.raise, &set.score),
        Verb::Score => (&set.score, b""),
        _ => (b"", &set.score),
    };
    out.extend_from_slice(first);
    let packed = op.packed(both);
    out.extend_from_slice(text.unwrap_or_else(|| packed.first()));
    out.extend_from_slice(second);
    out.extend_from_slice(packed.second());
    if shows_score(op.verb()) {
        out.extend_from_slice(&set.score);
        member(op, &[b"GET", op.key()], out);
    }
}

/// Returns the request for a master whose ballot set has no name yet: only the `SET`.
pub(super) fn alone(op: &Op) -> &[u8] {
    op.packed(both).first()
}

/// Builds the two parts of a request that are the same for all masters: the bytes before the second
/// place for the name of the set, and the bytes after it.
fn both(op: &Op) -> Packed {
    let mut packed = Packed::new();
    first(op, &mut packed);
    packed.split();
    second(op, &mut packed);
    packed
}

fn first(op: &Op, packed: &mut Packed) {
    match op.verb() {
        Verb::Ballot | Verb::Score => arguments(op, &[], packed),
        Verb::Enter { .. } | Verb::Take { .. } => encode::by_digest(op, None, packed),
        _ => encode::acquire(op, packed),
    }
}

fn second(op: &Op, packed: &mut Packed) {
    let get: [&[u8]; 2] = [b"GET", op.key()];
    match op.verb() {
        Verb::Acquire { .. } => arguments(op, &get, packed),
        verb if shows_score(verb) => arguments(op, &[], packed),
        Verb::Ballot => member(op, &get, packed),
        Verb::Score => {}
        _ => member(op, &[], packed),
    }
}

/// Writes the ballot, if there is one, and its member in decimal digits, followed by the commands
/// in `next`.
fn arguments(op: &Op, next: &[&[u8]], packed: &mut Packed) {
    let Some(Bid { ballot, member }) = op.bid() else { return member(op, next, packed) };
    let (mut score, mut number) = (itoa::Buffer::new(), itoa::Buffer::new());
    let words = [score.format(ballot.score()), number.format(member.number())];
    resp::tail(packed, &words.map(str::as_bytes), next);
}

fn member(op: &Op, next: &[&[u8]], out: &mut impl Room) {
    let Some(member) = op.member() else { return };
    resp::tail(out, &[itoa::Buffer::new().format(member.number()).as_bytes()], next);
}

/// Returns `true` if the score is read after the ballot is sent.
fn shows_score(verb: Verb) -> bool {
    matches!(verb, Verb::Enter { .. } | Verb::Take { .. })
}

/// A command of the request. Each has one reply.
#[derive(Clone, Copy)]
enum Part {
    /// `SET`: whether the key is ours now.
    Set,
    /// A script that sets the key: whether the key is ours now, and the state of the queue.
    Script,
    /// `ZADD`: whether the ballot was accepted.
    Raise,
    /// `ZSCORE`.
    Score,
    /// `GET`: whether the key is ours.
    Key,
}

fn parts(verb: Verb) -> &'static [Part] {
    match verb {
        Verb::Acquire { .. } => &[Part::Set, Part::Raise, Part::Key],
        Verb::Enter { .. } | Verb::Take { .. } => {
            &[Part::Script, Part::Raise, Part::Score, Part::Key]
        }
        Verb::Ballot => &[Part::Raise, Part::Score, Part::Key],
        Verb::Score => &[Part::Score],
        _ => &[Part::Set, Part::Score],
    }
}

/// The replies so far to one request. The reply to a refused command is its error.
#[derive(Default)]
pub(super) struct Replies {
    replies: usize,
    set: Option<Result<bool, Cause>>,
    /// The whole answer of a script that sets the key.
    script: Option<Answer>,
    raised: Option<Result<bool, Cause>>,
    score: Option<Result<Balloted, Cause>>,
    is_ours: Option<Result<bool, Cause>>,
}

impl Replies {
    /// Takes the next reply to `op`, of which nothing but its first command was sent where it
    /// `is_alone`. A member that is not there means `missing`. Returns the answer with the last
    /// one.
    pub(super) fn take(
        &mut self,
        op: &Op,
        is_alone: bool,
        missing: Balloted,
        reply: Value,
    ) -> Result<Option<Answer>, Garbage> {
        let parts = parts(op.verb());
        let part = *parts.get(self.replies).ok_or(Garbage)?;
        self.take_part(part, op, missing, reply)?;
        self.replies += 1;
        if self.replies < parts.len() && !is_alone {
            return Ok(None);
        }
        let replies = std::mem::take(self);
        let queued = replies.script.as_ref().and_then(|script| script.queued);
        let answer = if is_alone { replies.alone() } else { replies.answer() };
        Ok(Some(Answer { queued, ..answer }))
    }

    fn take_part(
        &mut self,
        part: Part,
        op: &Op,
        missing: Balloted,
        reply: Value,
    ) -> Result<(), Garbage> {
        let is_no_set = missing == Balloted::NoMember && resp::is_of_another_type(&reply);
        match part {
            // A key of another type has no members.
            Part::Raise | Part::Score if is_no_set => self.score = Some(Ok(missing)),
            Part::Set => self.set = Some(said(reply, is_set)?),
            Part::Script => {
                let answer = reply::answer(op.verb(), reply)?;
                self.set = Some(key_of(&answer));
                self.script = Some(answer);
            }
            Part::Raise => self.raised = Some(said(reply, is_raised)?),
            Part::Score => self.score = Some(said(reply, |reply| score(reply, missing))?),
            Part::Key => self.is_ours = Some(is_ours(reply, op.token())?),
        }
        Ok(())
    }

    /// Returns the answer that all replies give together.
    fn answer(self) -> Answer {
        if let Some(refused) = self.refused() {
            return refused;
        }
        let (is_accepted, verdict) = match self.raised {
            Some(Err(cause)) => return Answer::unknown(cause).with_key_set(),
            Some(Ok(is_accepted)) => (is_accepted, Verdict::BallotRefused),
            // Without a ballot in the request there is nothing to refuse.
            None => (false, Verdict::Granted),
        };
        match self.score {
            Some(Ok(Balloted::NoMember)) => unfit(WhyNot::Incomplete, Balloted::NoMember),
            Some(Ok(Balloted::Foreign)) => unfit(WhyNot::ScoreTooLarge, Balloted::Foreign),
            _ if is_accepted => Answer::granted().with_ballot(Balloted::Accepted),
            Some(Ok(score)) => Answer::new(verdict).with_ballot(score),
            Some(Err(cause)) => Answer::unknown(cause).with_key_set(),
            None => Answer::new(verdict).with_ballot(Balloted::Refused),
        }
    }

    /// Returns the answer to a `SET` that was sent without a ballot.
    fn alone(self) -> Answer {
        let too_early = || Answer::unknown(too_early()).with_key_set();
        self.refused().unwrap_or_else(too_early)
    }

    /// Returns the reason why the key is not ours, or `None` if it is.
    fn refused(&self) -> Option<Answer> {
        match (&self.set, &self.is_ours) {
            (Some(Err(cause)), _) => Some(Answer::unknown(cause.clone())),
            (Some(Ok(false)), _) => {
                let held = || Answer::new(Verdict::HELD);
                Some(self.script.clone().unwrap_or_else(held))
            }
            (_, Some(Err(cause))) => Some(Answer::unknown(cause.clone()).with_key_set()),
            (_, Some(Ok(false))) => Some(Answer::new(Verdict::NotOurs)),
            _ => None,
        }
    }

    /// Returns the answer to an acquire or a take, and its length, if `bytes` begins with one of
    /// the two usual replies: granted, or refused because the key is held. It needs no parser.
    pub(super) fn at_once(&self, op: &Op, bytes: &[u8]) -> Option<(Plain, usize)> {
        // A take is granted in the same words, but for the score.
        if self.replies > 0 || !matches!(op.verb(), Verb::Acquire { .. } | Verb::Take { .. }) {
            return None;
        }
        let (is_set, rest) = match bytes.strip_prefix(resp::OK) {
            Some(rest) => (true, rest),
            None => (false, resp::NILS.iter().find_map(|nil| bytes.strip_prefix(*nil))?),
        };
        let (is_accepted, rest) = match rest.strip_prefix(resp::ONE) {
            Some(rest) => (true, rest),
            None if shows_score(op.verb()) => return None,
            None => (false, rest.strip_prefix(resp::ZERO)?),
        };
        let rest = if shows_score(op.verb()) { behind_score(rest, op)? } else { rest };
        let (plain, rest) = match (is_set, is_accepted) {
            (false, _) => (Plain::Held, behind_value(rest)?),
            (true, true) => (Plain::Accepted, behind(rest, op.token())?),
            (true, false) => (Plain::Refused, behind(rest, op.token())?),
        };
        Some((plain, bytes.len() - rest.len()))
    }
}

/// Parses the answer to a resume. `missing` is the meaning of a missing member.
pub(super) fn resumed(op: &Op, missing: Balloted, reply: Value) -> Result<Answer, Garbage> {
    match reply {
        // It was extended without a ballot.
        Value::Int(1) => Ok(Answer::unknown(too_early()).with_key_set()),
        Value::Array(replies) if replies.first() == Some(&Value::Int(1)) => {
            let Ok([_, raised, score]) = <[Value; 3]>::try_from(replies) else {
                return Err(Garbage);
            };
            let mut replies = Replies::default();
            replies.take_part(Part::Raise, op, missing, raised)?;
            replies.take_part(Part::Score, op, missing, score)?;
            Ok(replies.answer())
        }
        reply => reply::answer(op.verb(), reply),
    }
}

/// Returns the reason why no ballot was sent: the master was not admitted when the connection last
/// read its record.
pub(super) fn too_early() -> Cause {
    Cause::NotAdmitted(NotAdmitted::new(WhyNot::AskedTooEarly).into())
}

/// Creates the answer of a master with unexpected ballots, which still has the key.
fn unfit(why: WhyNot, found: Balloted) -> Answer {
    let cause = Cause::NotAdmitted(NotAdmitted::new(why).into());
    Answer::unknown(cause).with_ballot(found).with_key_set()
}

/// Returns the content of a reply, or the error in it.
fn said<T>(
    reply: Value,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Result<Result<T, Cause>, Garbage> {
    match &reply {
        Value::ServerError(error) => Ok(Err(resp::refusal(error))),
        reply => read(reply).map(Ok).ok_or(Garbage),
    }
}

/// Returns `true` if the key is ours, from the answer of a script that sets it.
fn key_of(answer: &Answer) -> Result<bool, Cause> {
    match &answer.verdict {
        Verdict::Granted => Ok(true),
        Verdict::Unknown(cause) => Err(cause.clone()),
        _ => Ok(false),
    }
}

fn is_set(reply: &Value) -> Option<bool> {
    match reply {
        Value::Okay => Some(true),
        Value::Nil => Some(false),
        _ => None,
    }
}

fn is_raised(reply: &Value) -> Option<bool> {
    match reply {
        Value::Int(1) => Some(true),
        Value::Int(0) => Some(false),
        _ => None,
    }
}

fn is_ours(reply: Value, token: &[u8]) -> Result<Result<bool, Cause>, Garbage> {
    // A key of another type is another's.
    if resp::is_of_another_type(&reply) {
        return Ok(Ok(false));
    }
    said(reply, |reply| match reply {
        Value::BulkString(value) => Some(value == token),
        Value::Nil => Some(false),
        _ => None,
    })
}

/// Parses a score in either version of the protocol: as text, or as a number.
fn score(reply: &Value, missing: Balloted) -> Option<Balloted> {
    let score = match reply {
        Value::Nil => return Some(missing),
        Value::Double(score) => *score,
        Value::BulkString(text) => str::from_utf8(text).ok()?.parse().ok()?,
        _ => return None,
    };
    let is_ours = score.fract() == 0.0 && (0.0..SCORE_END as f64).contains(&score);
    Some(if is_ours { Balloted::Score(score as u64) } else { Balloted::Foreign })
}

/// Returns the bytes after a score that equals the ballot of `op`. The caller parses any other
/// score in full.
fn behind_score<'a>(bytes: &'a [u8], op: &Op) -> Option<&'a [u8]> {
    let mut digits = itoa::Buffer::new();
    let score = digits.format(op.bid()?.ballot.score()).as_bytes();
    match bytes.strip_prefix(b",") {
        Some(double) => double.strip_prefix(score)?.strip_prefix(b"\r\n"),
        None => behind(bytes, score),
    }
}
