//! Replies: the answer that each gives to its request, and the news in pushes.

use std::time::Duration;

use redis::{PushKind, Value};

use super::marks;
use super::resp::{self, Garbage, OK, ONE, is_of_another_type, refusal};
use crate::{Answer, Balloted, Call, NodeEvent, Queued, Verb, Verdict};

/// A message that answers no request.
pub(super) enum Aside {
    /// The content of a push. Empty for attributes and for pushes we did not subscribe to.
    Events(Vec<NodeEvent>),
    /// `SUBSCRIBE` was granted. This takes the place of its reply.
    Subscribed,
}

/// Parses a push or an attribute.
pub(super) fn aside(aside: &[u8]) -> Result<Aside, Garbage> {
    Ok(match resp::push(aside)? {
        Some(Value::Push { kind: PushKind::Invalidate, data }) => Aside::Events(invalidated(data)),
        Some(Value::Push { kind: PushKind::Message, data }) => Aside::Events(called(&data)),
        Some(Value::Push { kind: PushKind::Subscribe, .. }) => Aside::Subscribed,
        _ => Aside::Events(Vec::new()),
    })
}

/// Parses a message on the channel of our ticket, the only channel that we subscribe to.
fn called(message: &[Value]) -> Vec<NodeEvent> {
    let [_, Value::BulkString(text)] = message else { return Vec::new() };
    let call = Call::parse(text).map(|(call, key)| NodeEvent::Called(call, key.into()));
    call.into_iter().collect()
}

/// Parses the keys of an `invalidate`. Without keys, all data may be gone.
fn invalidated(data: Vec<Value>) -> Vec<NodeEvent> {
    let changed = |key| match key {
        Value::BulkString(key) => Some(NodeEvent::KeyChanged(key.into())),
        _ => None,
    };
    match <[Value; 1]>::try_from(data) {
        Ok([Value::Array(keys)]) => keys.into_iter().filter_map(changed).collect(),
        Ok([Value::Nil]) => vec![NodeEvent::DataLost],
        _ => Vec::new(),
    }
}

/// The rest of the reply for a key that was released while no ticket waited for it.
const LEFT_ALONE: &[u8] = b"*2\r\n:1\r\n:0\r\n";

/// An answer that needs no parser. Nearly every answer is one of these.
#[derive(Clone, Copy)]
pub(super) enum Plain {
    Granted,
    /// The key was released, and no ticket waits for it.
    LeftAlone,
    Held,
    /// The key is ours, and the ballot was accepted, or refused.
    Accepted,
    Refused,
}

impl Plain {
    #[inline]
    pub(super) fn answer(self) -> Answer {
        let verdict = match self {
            Self::Granted | Self::LeftAlone | Self::Accepted => Verdict::Granted,
            Self::Held => Verdict::HELD,
            Self::Refused => Verdict::BallotRefused,
        };
        let balloted = match self {
            Self::Accepted => Some(Balloted::Accepted),
            Self::Refused => Some(Balloted::Refused),
            _ => None,
        };
        let is_left = matches!(self, Self::LeftAlone);
        let queued = is_left.then_some(Queued { waiters: 0, rank: None });
        Answer { balloted, queued, ..Answer::new(verdict) }
    }
}

/// Returns the answer to a request, and its length, if the first reply in `bytes` grants it.
pub(super) fn granted(verb: Verb, bytes: &[u8]) -> Option<(Plain, usize)> {
    if matches!(verb, Verb::Leave { .. }) {
        let is_left = bytes.starts_with(LEFT_ALONE);
        return is_left.then_some((Plain::LeftAlone, LEFT_ALONE.len()));
    }
    let grant = match verb {
        Verb::Acquire { .. } | Verb::Take { .. } => OK,
        Verb::Extend { .. } | Verb::Release | Verb::RaiseMark { .. } | Verb::Reserve { .. } => ONE,
        _ => return None,
    };
    bytes.starts_with(grant).then_some((Plain::Granted, grant.len()))
}

/// Converts a reply into the answer to a request.
pub(super) fn answer(verb: Verb, reply: Value) -> Result<Answer, Garbage> {
    match (verb, reply) {
        // A key of another type belongs to someone else. The script answers 0 for it, so its
        // replacement must do the same.
        (Verb::Release, reply) if is_of_another_type(&reply) => Ok(Answer::new(Verdict::NotOurs)),
        (_, Value::ServerError(error)) => Ok(Answer::unknown(refusal(&error))),
        (Verb::Acquire { .. }, Value::Okay) => Ok(Answer::granted()),
        (Verb::Acquire { .. }, Value::Nil) => Ok(Answer::new(Verdict::HELD)),
        (Verb::Extend { .. } | Verb::Release | Verb::RaiseMark { .. }, Value::Int(1)) => {
            Ok(Answer::granted())
        }
        (Verb::ReadMark, Value::Array(read)) => marks::read(read),
        (Verb::Extend { .. } | Verb::Resume { .. } | Verb::Release, Value::Int(0)) => {
            Ok(Answer::new(Verdict::NotOurs))
        }
        (Verb::Inspect | Verb::Watch, Value::Int(0)) => Ok(Answer::new(Verdict::Free)),
        (
            Verb::Extend { .. } | Verb::Resume { .. } | Verb::Inspect | Verb::Watch,
            Value::Array(pair),
        ) => held(pair),
        (verb, reply) => of_queue(verb, reply),
    }
}

/// `{value, PTTL}`: the key's value and its remaining expiry. A key of another type has no value.
fn held(pair: Vec<Value>) -> Result<Answer, Garbage> {
    let Ok([value, Value::Int(left)]) = <[Value; 2]>::try_from(pair) else { return Err(Garbage) };
    // A key without expiry has a PTTL of -1: it is held without an end.
    let ttl = match left {
        -1 => None,
        left => Some(Duration::from_millis(u64::try_from(left).map_err(|_| Garbage)?)),
    };
    match value {
        Value::BulkString(value) => Ok(Answer::held(Some(&value), ttl)),
        Value::Nil => Ok(Answer::held(None, ttl)),
        _ => Err(Garbage),
    }
}

/// Parses the answer to a queue request, or to one of its related scripts.
fn of_queue(verb: Verb, reply: Value) -> Result<Answer, Garbage> {
    match (verb, reply) {
        (Verb::Enter { .. }, Value::Array(parts)) => entered(parts),
        (Verb::Leave { .. }, Value::Array(parts)) => left(&parts),
        (Verb::Take { .. }, Value::Okay) | (Verb::Reserve { .. }, Value::Int(1)) => {
            Ok(Answer::granted())
        }
        (Verb::Take { .. }, Value::Array(pair)) => held(pair),
        (Verb::Reserve { .. }, Value::Int(0)) => Ok(Answer::new(Verdict::NotOurs)),
        (Verb::CountWaiters, Value::Int(waiters)) => {
            Ok(Answer::granted().with_queued(Queued { waiters: waiters_in(waiters)?, rank: None }))
        }
        _ => Err(Garbage),
    }
}

/// `{1, waiters}`, or `{0, waiters, rank or -1, value, PTTL}`.
fn entered(parts: Vec<Value>) -> Result<Answer, Garbage> {
    if let [Value::Int(1), Value::Int(waiters)] = parts[..] {
        let queued = Queued { waiters: waiters_in(waiters)?, rank: None };
        return Ok(Answer::granted().with_queued(queued));
    }
    let Ok([Value::Int(0), Value::Int(waiters), Value::Int(rank), value, Value::Int(left)]) =
        <[Value; 5]>::try_from(parts)
    else {
        return Err(Garbage);
    };
    let rank = if rank == -1 { None } else { Some(waiters_in(rank)?) };
    /// The PTTL of a key that does not exist.
    const NO_KEY: i64 = -2;
    let answer = match left {
        NO_KEY => Answer::new(Verdict::Free),
        left => held(vec![value, Value::Int(left)])?,
    };
    Ok(answer.with_queued(Queued { waiters: waiters_in(waiters)?, rank }))
}

/// `{1 or 0, waiters}`.
fn left(parts: &[Value]) -> Result<Answer, Garbage> {
    let [Value::Int(was_ours @ (0 | 1)), Value::Int(waiters)] = parts else { return Err(Garbage) };
    let verdict = if *was_ours == 1 { Verdict::Granted } else { Verdict::NotOurs };
    Ok(Answer::new(verdict).with_queued(Queued { waiters: waiters_in(*waiters)?, rank: None }))
}

fn waiters_in(number: i64) -> Result<u32, Garbage> {
    u32::try_from(number).map_err(|_| Garbage)
}

#[cfg(test)]
mod tests {
    use super::super::resp::tests::REPLIES;
    use super::super::resp::{len, parse};
    use super::*;
    use crate::Cause;

    const EXTEND: Verb = Verb::Extend { px: 1 };
    const ACQUIRE: Verb = Verb::Acquire { px: 1 };

    #[test]
    fn fast_path_and_parser_agree_on_grants() {
        let leave = Verb::Leave { leaving: crate::Leaving::Done };
        let alone = Answer::granted().with_queued(Queued { waiters: 0, rank: None });
        let more = [ONE, b":10\r\n", b":1", b"+OK", b"", LEFT_ALONE, b"*2\r\n:1\r\n:1\r\n"];
        for verb in [ACQUIRE, EXTEND, Verb::Release, Verb::Inspect, Verb::Watch, leave] {
            for reply in REPLIES.into_iter().chain(more) {
                let whole = len(reply).unwrap().map(|len| (&reply[..len], len));
                let parsed = whole.and_then(|(one, len)| {
                    let answer = parse(one).and_then(|value| answer(verb, value)).ok()?;
                    Some((answer, len))
                });
                let grant = parsed.filter(|(one, _)| *one == Answer::granted() || *one == alone);
                let granted = granted(verb, reply).map(|(plain, len)| (plain.answer(), len));
                assert_eq!(granted, grant, "{verb:?}");
            }
        }
    }

    #[test]
    fn an_attribute_inside_a_reply_changes_nothing() {
        let plain = answer(Verb::Inspect, parse(b"*2\r\n$1\r\na\r\n:5\r\n").unwrap());
        for with_attribute in [
            &b"*2\r\n|1\r\n+ttl\r\n:9\r\n$1\r\na\r\n:5\r\n"[..],
            b"*2\r\n$1\r\na\r\n|1\r\n+ttl\r\n:9\r\n:5\r\n",
        ] {
            assert_eq!(answer(Verb::Inspect, parse(with_attribute).unwrap()), plain);
        }
    }

    #[test]
    fn only_a_clear_yes_is_granted() {
        assert_eq!(said(ACQUIRE, b"+OK\r\n"), Ok(Answer::granted()));
        assert_eq!(said(ACQUIRE, b"$-1\r\n"), Ok(Answer::new(Verdict::HELD)));
        assert_eq!(said(ACQUIRE, b":1\r\n"), Err(Garbage));
        assert_eq!(said(ACQUIRE, b"+QUEUED\r\n"), Err(Garbage));
        assert_eq!(said(EXTEND, b":1\r\n"), Ok(Answer::granted()));
        assert_eq!(said(EXTEND, b":0\r\n"), Ok(Answer::new(Verdict::NotOurs)));
        assert_eq!(said(EXTEND, b":2\r\n"), Err(Garbage));
        assert_eq!(said(Verb::Release, b"+OK\r\n"), Err(Garbage));
        let error = said(ACQUIRE, b"-OOM command not allowed\r\n").unwrap();
        assert_eq!(error, Answer::unknown(Cause::ErrorReply("OOM command not allowed".into())));
    }

    /// `DELIFEQ` answers as most commands do, and `DELEX` of Redis 8.4 in its own words.
    #[test]
    fn release_of_another_type_is_not_ours() {
        for error in [
            "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
            "-ERR Key should be of string type if conditions are specified\r\n",
        ] {
            let answer = said(Verb::Release, error.as_bytes());
            assert_eq!(answer, Ok(Answer::new(Verdict::NotOurs)), "{error}");
        }
    }

    #[test]
    fn held_key_has_its_value_and_remaining_time() {
        let fifty = Some(Duration::from_millis(50));
        for verb in [EXTEND, Verb::Inspect] {
            assert_eq!(
                said(verb, b"*2\r\n$1\r\na\r\n:50\r\n"),
                Ok(Answer::held(Some(b"a"), fifty))
            );
            assert_eq!(said(verb, b"*2\r\n$1\r\na\r\n:-1\r\n"), Ok(Answer::held(Some(b"a"), None)));
            let other_type = said(verb, b"*2\r\n$-1\r\n:50\r\n");
            assert_eq!(other_type, Ok(Answer::held(None, fifty)), "it is not a grant");
            assert_eq!(said(verb, b"*2\r\n$-1\r\n:-2\r\n"), Err(Garbage));
        }
        assert_eq!(said(Verb::Inspect, b":0\r\n"), Ok(Answer::new(Verdict::Free)));
        assert_eq!(said(Verb::Inspect, b":1\r\n"), Err(Garbage));
    }

    #[test]
    fn a_demoted_master_is_recognized_by_its_error() {
        let cause = |reply: &[u8]| match answer(EXTEND, parse(reply).unwrap()).unwrap().verdict {
            Verdict::Unknown(cause) => cause,
            verdict => panic!("{verdict}"),
        };
        for demoted in [
            &b"-READONLY You can't write against a read only replica.\r\n"[..],
            b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to \
              'no'.\r\n",
            b"-ERR Error running script (call to f_1): @user_script:5: @user_script: 5: -READONLY \
              You can't write against a read only slave.\r\n",
        ] {
            let cause = cause(demoted);
            assert!(matches!(cause, Cause::Demoted(_)), "{cause}");
        }
        for other in [
            &b"-ERR READONLY is not what this is about\r\n"[..],
            b"-NOPERM the user may not use '-READONLY '\r\n",
            b"-OOM command not allowed\r\n",
        ] {
            let cause = cause(other);
            assert!(matches!(cause, Cause::ErrorReply(_)), "{cause}");
        }
    }

    fn said(verb: Verb, reply: &[u8]) -> Result<Answer, Garbage> {
        answer(verb, parse(reply)?)
    }

    const ENTERED: Verb = Verb::Enter { px: 1 };

    #[test]
    fn granted_entry_has_the_number_of_waiters() {
        let queued = Queued { waiters: 3, rank: None };
        assert_eq!(said(ENTERED, b"*2\r\n:1\r\n:3\r\n"), Ok(Answer::granted().with_queued(queued)));
    }

    #[test]
    fn refused_entry_has_the_place_and_the_holder() {
        let fifty = Some(Duration::from_millis(50));
        let second = Queued { waiters: 2, rank: Some(1) };
        let held = Answer::held(Some(b"a"), fifty).with_queued(second);
        assert_eq!(said(ENTERED, b"*5\r\n:0\r\n:2\r\n:1\r\n$1\r\na\r\n:50\r\n"), Ok(held));
        let of_another_type = Answer::held(None, fifty).with_queued(second);
        assert_eq!(said(ENTERED, b"*5\r\n:0\r\n:2\r\n:1\r\n_\r\n:50\r\n"), Ok(of_another_type));
        let full = Answer::new(Verdict::Free).with_queued(Queued { waiters: 2, rank: None });
        assert_eq!(said(ENTERED, b"*5\r\n:0\r\n:2\r\n:-1\r\n_\r\n:-2\r\n"), Ok(full));
        for strange in [&b"*1\r\n:1\r\n"[..], b":1\r\n", b"*2\r\n:2\r\n:0\r\n", b"+OK\r\n"] {
            assert_eq!(said(ENTERED, strange), Err(Garbage), "{}", strange.escape_ascii());
        }
    }
}
