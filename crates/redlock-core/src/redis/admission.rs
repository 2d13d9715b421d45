//! How an [`AdmissionOp`] is encoded, and what the replies to it mean.

use redis::{Cmd, Value, cmd};

use super::facts::{self, info};
use super::namespace::Namespace;
use super::resp;
use super::stream::unusable;
use crate::admission::{
    AdmissionOp, AdmissionReply, Admit, Begin, Identity, Init, Millis, Note, Outcome, RecordedSet,
    Remove, Reply, SCORE_END, Score, Seen, Way,
};
use crate::{Cause, Facts, Op, Role, VoteSlot};

/// A sent request, and the replies to it so far.
pub(super) struct InHand {
    op: Op,
    pub(super) slot: VoteSlot,
    replies: Vec<Value>,
    /// How many replies are to come.
    missing: usize,
}

/// What became of a request with a reply.
pub(super) enum Progress {
    /// There are more replies to come.
    Waiting(Box<InHand>),
    Done(VoteSlot, Result<AdmissionReply, Cause>),
    /// The facts are read, and the members are still to be counted.
    Count(VoteSlot, Facts),
}

impl InHand {
    /// Encodes the request, and prepares the state for its replies.
    pub(super) fn prepare(
        op: Op,
        slot: VoteSlot,
        namespace: Option<&Namespace>,
    ) -> (Vec<u8>, Box<Self>) {
        let requests = op.admission_op().map_or(Vec::new(), |op| requests(op, namespace));
        let packed = requests.iter().flat_map(Cmd::get_packed_command).collect();
        let missing = requests.len();
        (packed, Box::new(Self { op, slot, replies: Vec::new(), missing }))
    }

    pub(super) fn take(mut self: Box<Self>, reply: Value) -> Progress {
        self.replies.push(reply);
        self.missing -= 1;
        if self.missing > 0 {
            return Progress::Waiting(self);
        }
        let Self { op, slot, replies, .. } = *self;
        match op.admission_op().map_or_else(|| Err(strange()), |op| said(op, &replies)) {
            Ok(AdmissionReply::Facts { facts, members: None }) => Progress::Count(slot, facts),
            said => Progress::Done(slot, said),
        }
    }
}

pub(super) fn needs_namespace(op: &AdmissionOp) -> bool {
    !matches!(op, AdmissionOp::ReadFacts | AdmissionOp::ReadTime)
}

/// Returns the set whose members are counted after a record is read: the set of the record's `run`.
/// Without a `run`, a client with a quarantine counts the set of clients without one, because their
/// prefix would look new otherwise.
pub(super) fn counted(namespace: &Namespace, facts: &Facts) -> Option<Cmd> {
    match facts.record.as_ref().ok()?.run {
        Some(run) => Some(count(namespace.ballots(run))),
        None if facts.role != Role::Master => None,
        None => namespace.quarantine.then(|| count(namespace.off.clone())),
    }
}

fn count(set: Vec<u8>) -> Cmd {
    cmd("ZCARD").arg(set).clone()
}

/// Returns the number of members, or `None` if the server refuses to count them. A key of another
/// type has no members, so the master is not admitted. The scripts write nothing to such a key. Their
/// replies contain its name.
pub(super) fn members(reply: &Value) -> Option<u32> {
    match reply {
        Value::Int(count) => u32::try_from(*count).ok(),
        reply if resp::is_of_another_type(reply) => Some(0),
        _ => None,
    }
}

fn requests(op: &AdmissionOp, namespace: Option<&Namespace>) -> Vec<Cmd> {
    let Some(namespace) = namespace else {
        let server = [info("server")];
        let behind = matches!(op, AdmissionOp::ReadFacts).then(|| info("replication"));
        return server.into_iter().chain(behind).collect();
    };
    let facts = || [info("server"), info("replication"), namespace.read_record()];
    match op {
        AdmissionOp::ReadFacts => facts().into(),
        AdmissionOp::ReadTime => vec![info("server")],
        AdmissionOp::ReadScores(set) => {
            let mut requests = vec![highest(namespace, *set)];
            requests.extend(facts());
            requests
        }
        AdmissionOp::ShowUse => vec![show_use(namespace)],
        AdmissionOp::Begin(begin) => vec![self::begin(namespace, begin)],
        AdmissionOp::Note(note) => vec![self::note(namespace, note)],
        AdmissionOp::Admit(admit) => vec![self::admit(namespace, admit)],
        AdmissionOp::Init(init) => vec![self::init(namespace, init)],
        AdmissionOp::Remove(remove) => vec![self::remove(namespace, remove)],
    }
}

fn highest(namespace: &Namespace, set: Option<Identity>) -> Cmd {
    let mut highest = cmd("ZREVRANGEBYSCORE");
    let set = set.map_or_else(|| namespace.off.clone(), |run| namespace.ballots(run));
    highest.arg(set).arg(format!("({SCORE_END}")).arg("-inf");
    highest.arg("WITHSCORES").arg("LIMIT").arg(0).arg(1).clone()
}

/// Adds a member without changing existing ones. Servers older than ballots know this command as
/// well.
fn show_use(namespace: &Namespace) -> Cmd {
    cmd("ZADD").arg(&namespace.off).arg("NX").arg(0).arg(0).clone()
}

/// What all scripts have in common stands around each of them.
macro_rules! script {
    ($name:literal) => {
        concat!(
            include_str!("scripts/record.lua"),
            include_str!($name),
            include_str!("scripts/finish.lua")
        )
    };
}

/// Calls a script. The call always carries the script's text, because these calls are rare, and a
/// call repeated after `NOSCRIPT` would arrive after later requests.
fn call(namespace: &Namespace, script: &str, until: Millis) -> Cmd {
    let mut call = cmd("EVAL");
    call.arg(script).arg(2).arg(&namespace.record).arg(&namespace.off).arg(until);
    call
}

fn begin(namespace: &Namespace, order: &Begin) -> Cmd {
    let mut call = call(namespace, script!("scripts/begin.lua"), order.until);
    expect(&mut call, &order.expect);
    call.arg(order.identity.to_string()).arg(order.nonce.to_string()).arg(order.max_ttl);
    call.arg(u8::from(order.is_outdated));
    call
}

fn note(namespace: &Namespace, order: &Note) -> Cmd {
    let mut call = call(namespace, script!("scripts/note.lua"), order.until);
    call.arg(order.nonce.to_string());
    for (process, time) in &order.times {
        call.arg(process.to_string()).arg(*time);
    }
    call
}

fn admit(namespace: &Namespace, order: &Admit) -> Cmd {
    let mut call = call(namespace, script!("scripts/admit.lua"), order.until);
    let lengths = match order.way {
        Way::Known => 0,
        Way::Noted => 1,
    };
    call.arg(order.nonce.to_string()).arg(order.identity.to_string());
    call.arg(lengths).arg(order.floor);
    set(&mut call, order.set.as_ref());
    call
}

fn init(namespace: &Namespace, order: &Init) -> Cmd {
    let mut call = call(namespace, script!("scripts/init.lua"), order.until);
    expect(&mut call, &order.expect);
    call.arg(order.identity.to_string()).arg(order.nonce.to_string()).arg(order.max_ttl);
    call.arg(u8::from(order.lower)).arg(order.floor).arg(order.level);
    call.arg(u8::from(order.converts));
    set(&mut call, order.set.as_ref().map(|change| &change.to));
    let from = order.set.as_ref().and_then(|change| change.from.as_ref());
    call.arg(from.map_or(String::new(), RecordedSet::text));
    call
}

fn remove(namespace: &Namespace, order: &Remove) -> Cmd {
    let mut call = call(namespace, script!("scripts/remove.lua"), order.until);
    expect(&mut call, &order.expect);
    call.arg(order.start.map_or(String::new(), |start| start.to_string()));
    call
}

/// Adds the fields `set` and `names`. They are empty to leave the record's fields unchanged.
fn set(call: &mut Cmd, set: Option<&RecordedSet>) {
    call.arg(set.map_or(String::new(), RecordedSet::text));
    call.arg(set.map_or(String::new(), |set| set.names.text()));
}

/// Adds the expected fields. A missing field is sent as an empty string.
fn expect(call: &mut Cmd, seen: &Seen) {
    let identity = |id: Option<Identity>| id.map_or(String::new(), |id| id.to_string());
    call.arg(identity(seen.run)).arg(identity(seen.id));
    call.arg(seen.nonce.map_or(String::new(), |nonce| nonce.to_string()));
    call.arg(seen.max_ttl.map_or(String::new(), |max_ttl| max_ttl.to_string()));
}

fn said(order: &AdmissionOp, replies: &[Value]) -> Result<AdmissionReply, Cause> {
    match (order, replies) {
        (AdmissionOp::ReadFacts, [server, replication, record @ ..]) => {
            let facts = facts::facts(server, replication, record.first())?;
            Ok(AdmissionReply::Facts { facts, members: None })
        }
        // A server error in reply to `ReadFacts` is part of the facts.
        (_, [Value::ServerError(error), ..]) => Err(resp::refusal(error)),
        (AdmissionOp::ReadTime, [server]) => {
            let (process, time_us) = facts::clock(server)?;
            Ok(AdmissionReply::Time { process, time: time_us / 1_000 })
        }
        (AdmissionOp::ReadScores(_), [score, server, replication, record]) => {
            let facts = facts::facts(server, replication, Some(record))?;
            Ok(AdmissionReply::Scores { highest: self::score(score), facts })
        }
        (AdmissionOp::ShowUse, [Value::Int(_)]) => Ok(AdmissionReply::Shown),
        (AdmissionOp::ShowUse, _) => Err(strange()),
        (_, [reply]) => Ok(AdmissionReply::Script(script_reply(reply)?)),
        _ => Err(strange()),
    }
}

/// Parses the score in the answer to `ZREVRANGEBYSCORE`. A fraction, which no client of ours
/// writes, is rounded up.
fn score(found: &Value) -> Option<Score> {
    let score = match found {
        Value::Array(pair) => return pair.last().and_then(score),
        Value::Double(score) => *score,
        Value::BulkString(text) => str::from_utf8(text).ok()?.parse().ok()?,
        _ => return None,
    };
    Some(score.ceil().max(0.0) as Score)
}

fn script_reply(reply: &Value) -> Result<Reply, Cause> {
    let Value::Array(parts) = reply else { return Err(strange()) };
    let [Value::Int(outcome), Value::BulkString(time), record, count] = parts.as_slice() else {
        return Err(strange());
    };
    let time = str::from_utf8(time).ok().and_then(|time| time.parse().ok());
    let record = facts::record(record).map_err(|unread| unusable(unread.to_string()))?;
    Ok(Reply {
        outcome: outcome_of(*outcome).ok_or_else(strange)?,
        time: time.ok_or_else(strange)?,
        record: *record,
        members: members(count).ok_or_else(strange)?,
    })
}

/// `scripts/record.lua` uses the same numbers.
fn outcome_of(number: i64) -> Option<Outcome> {
    use Outcome::{Done, Early, Late, Mixed, Moved, TooLarge};
    let outcomes = [Done, Moved, Early, Mixed, TooLarge, Late];
    outcomes.get(usize::try_from(number).ok()?).copied()
}

fn strange() -> Cause {
    unusable("its answer is not one of a Redis server")
}
