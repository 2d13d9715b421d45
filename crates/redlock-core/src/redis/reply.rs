//! Replies: where one ends in the received bytes, and its content.

use std::time::Duration;

use redis::{PushKind, Value};

use super::{marks, queues};
use crate::server_error::{ServerError, without_arguments};
use crate::{Answer, Balloted, Call, Cause, NodeEvent, Queued, Verb, Verdict};

/// Bytes that are no reply of a Redis, or one that no command of ours has: the connection is of
/// no use any more, because it is unknown where the next reply begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Garbage;

/// The longest reply that is taken: `INFO` has some thousand bytes, everything else has fewer.
const LEN_MAX: usize = 1 << 20;
/// The longest first line of a reply: an error message, or a length.
const LINE_MAX: usize = 1 << 16;

/// How many bytes the first reply in `bytes` has; none when it is not complete yet. A push or an
/// attribute counts like a reply, see [`is_aside`].
///
/// Understands every type of RESP2 and RESP3, so that it never loses its place.
pub(super) fn len(bytes: &[u8]) -> Result<Option<usize>, Garbage> {
    let (mut at, mut missing) = (0, 1_usize);
    while missing > 0 {
        let Some(line) = line(bytes.get(at..).unwrap_or_default())? else { return Ok(None) };
        let is_first = at == 0;
        at += line.len() + 2;
        missing -= 1;
        match line[0] {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            b'$' | b'=' | b'!' => at += count(line)?.map_or(0, |len| len + 2),
            b'*' | b'~' | b'>' => missing += count(line)?.unwrap_or(0),
            b'%' => missing += 2 * count(line)?.unwrap_or(0),
            // It stands before a value, and is none.
            b'|' => missing += 2 * count(line)?.unwrap_or(0) + usize::from(!is_first),
            _ => return Err(Garbage),
        }
        if at + missing > LEN_MAX {
            return Err(Garbage);
        }
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// Whether this answers no request: a push, or an attribute of the reply or push that follows.
pub(super) fn is_aside(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'>' | b'|'))
}

/// A message that answers no request.
pub(super) enum Aside {
    /// The content of a push; `None` for a push that we have not asked for, and for an attribute.
    Events(Vec<NodeEvent>),
    /// `SUBSCRIBE` was granted: this stands where its reply would.
    Subscribed,
}

/// The content of a push or an attribute.
pub(super) fn aside(aside: &[u8]) -> Result<Aside, Garbage> {
    if !aside.starts_with(b">") {
        return Ok(Aside::Events(Vec::new()));
    }
    Ok(match redis::parse_redis_value(aside).map(plain).map_err(|_| Garbage)? {
        Value::Push { kind: PushKind::Invalidate, data } => Aside::Events(invalidated(data)),
        Value::Push { kind: PushKind::Message, data } => Aside::Events(called(&data)),
        Value::Push { kind: PushKind::Subscribe, .. } => Aside::Subscribed,
        _ => Aside::Events(Vec::new()),
    })
}

/// The content of a message on the channel of our ticket, the only channel that we subscribe to.
fn called(message: &[Value]) -> Vec<NodeEvent> {
    let [_, Value::BulkString(text)] = message else { return Vec::new() };
    let call = Call::parse(text).map(|(call, key)| NodeEvent::Called(call, key.into()));
    call.into_iter().collect()
}

/// The keys of an `invalidate`. Without keys all data may be gone.
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

/// The first line without its end; none when its end is not there yet.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Garbage> {
    match bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\r') {
        Some(0) => Err(Garbage),
        Some(end) => match bytes.get(end + 1) {
            Some(b'\n') => Ok(Some(&bytes[..end])),
            Some(_) => Err(Garbage),
            None => Ok(None),
        },
        None if bytes.len() >= LINE_MAX || !plausible(bytes) => Err(Garbage),
        None => Ok(None),
    }
}

/// Whether this can still become a reply: what is not a Redis is recognised at once.
fn plausible(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|byte| b"+-:_#,($=!*~>%|".contains(byte))
}

/// The number behind the type byte; none for "there is nothing" (`-1`).
fn count(line: &[u8]) -> Result<Option<usize>, Garbage> {
    let digits = str::from_utf8(&line[1..]).map_err(|_| Garbage)?;
    if digits == "-1" {
        return Ok(None);
    }
    let count: usize = digits.parse().map_err(|_| Garbage)?;
    if count > LEN_MAX { Err(Garbage) } else { Ok(Some(count)) }
}

pub(super) const OK: &[u8] = b"+OK\r\n";
pub(super) const ONE: &[u8] = b":1\r\n";
pub(super) const ZERO: &[u8] = b":0\r\n";
/// The null reply, in each version of the protocol.
pub(super) const NILS: [&[u8]; 2] = [b"$-1\r\n", b"_\r\n"];

/// The content of one whole reply. The replies that nearly every lock gets need no parser.
pub(super) fn parse(reply: &[u8]) -> Result<Value, Garbage> {
    match reply {
        OK => Ok(Value::Okay),
        nil if NILS.contains(&nil) => Ok(Value::Nil),
        ONE => Ok(Value::Int(1)),
        ZERO => Ok(Value::Int(0)),
        // The value behind a SET whose reply came before it.
        [b'$', ..] => Ok(element(reply).ok_or(Garbage)?.0),
        // The client's parser clears eight kilobytes for each reply, and each release of a key with
        // a queue is answered with a short list.
        _ => match flat(reply) {
            Some(list) => Ok(list),
            None => redis::parse_redis_value(reply).map(plain).map_err(|_| Garbage),
        },
    }
}

/// A list of numbers and texts; `None` if the reply is anything else.
fn flat(reply: &[u8]) -> Option<Value> {
    let head = line(reply).ok()??;
    let elements = count(head).ok()?.filter(|_| head[0] == b'*')?;
    let mut rest = reply.get(head.len() + 2..)?;
    let mut list = Vec::new();
    for _ in 0..elements {
        let (element, behind) = element(rest)?;
        list.push(element);
        rest = behind;
    }
    rest.is_empty().then_some(Value::Array(list))
}

/// The first of the elements in `bytes`, and what follows it.
fn element(bytes: &[u8]) -> Option<(Value, &[u8])> {
    let head = line(bytes).ok()??;
    let rest = bytes.get(head.len() + 2..)?;
    match head[0] {
        b':' => Some((Value::Int(str::from_utf8(&head[1..]).ok()?.parse().ok()?), rest)),
        b'$' => {
            let Some(len) = count(head).ok()? else { return Some((Value::Nil, rest)) };
            let (text, behind) = (rest.get(..len)?, rest.get(len..)?);
            Some((Value::BulkString(text.into()), behind.strip_prefix(b"\r\n")?))
        }
        _ => None,
    }
}

/// How long the text is with which `bytes` begin, and the bytes behind its first line.
pub(super) fn text_len(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let head = line(bytes).ok()??;
    let len = count(head).ok()?.filter(|_| head[0] == b'$')?;
    Some((len, bytes.get(head.len() + 2..)?))
}

/// The value without the attributes of its elements.
fn plain(value: Value) -> Value {
    match value {
        Value::Attribute { data, .. } => plain(*data),
        Value::Array(elements) => Value::Array(elements.into_iter().map(plain).collect()),
        Value::Push { kind, data } => {
            Value::Push { kind, data: data.into_iter().map(plain).collect() }
        }
        value => value,
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

/// The answer to a request, and how long it is, if the first reply in `bytes` grants it.
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

/// Whether a command was refused because of what kind of key it found.
pub(super) fn is_of_another_type(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "WRONGTYPE")
}

/// Converts a reply into the answer to a request.
pub(super) fn answer(verb: Verb, reply: Value) -> Result<Answer, Garbage> {
    match (verb, reply) {
        // A key of another type is another's. The script answers 0 then; so must what stands for
        // it.
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
        (verb, reply) => queues::answer(verb, reply),
    }
}

/// `{value, PTTL}`: the key's value and its remaining expiry. A key of another type has no value.
pub(super) fn held(pair: Vec<Value>) -> Result<Answer, Garbage> {
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

/// An error reply as a cause.
pub(super) fn refusal(error: &redis::ServerError) -> Cause {
    Cause::of_error_reply(message(error))
}

/// What an error reply means.
pub(super) fn kind(error: &redis::ServerError) -> ServerError {
    ServerError::of(&message(error))
}

/// An error reply as one line of text, without our scripts.
pub(super) fn message(error: &redis::ServerError) -> String {
    match error.details().map(without_arguments) {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTEND: Verb = Verb::Extend { px: 1 };
    const ACQUIRE: Verb = Verb::Acquire { px: 1 };

    /// Every reply type, some nested, each exactly one reply.
    const REPLIES: [&[u8]; 18] = [
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":42\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$5\r\na\r\nbc\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n$1\r\na\r\n:5\r\n",
        b"*2\r\n*1\r\n+a\r\n*2\r\n:1\r\n$-1\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"%1\r\n+a\r\n:1\r\n",
        b"~1\r\n+a\r\n",
        b">2\r\n+a\r\n+b\r\n",
        // An attribute is no reply, and comes before one; inside of one it is no element.
        b"|1\r\n+ttl\r\n:3600\r\n",
        b"*2\r\n|1\r\n+ttl\r\n:3600\r\n$1\r\na\r\n:5\r\n",
    ];

    #[test]
    fn a_reply_split_at_any_byte_is_found_when_it_is_complete() {
        for reply in REPLIES {
            for end in 0..reply.len() {
                assert_eq!(len(&reply[..end]), Ok(None), "{}", reply[..end].escape_ascii());
            }
            assert_eq!(len(reply), Ok(Some(reply.len())), "{}", reply.escape_ascii());
        }
    }

    #[test]
    fn what_follows_a_reply_is_left_alone() {
        for (first, second) in REPLIES.iter().zip(REPLIES.iter().rev()) {
            assert_eq!(len(&[*first, *second].concat()), Ok(Some(first.len())));
        }
    }

    #[test]
    fn what_is_not_a_redis_is_recognised_by_its_first_bytes() {
        for garbage in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"S", b"\x15\x03", b"\r\n", b"+a\rb"]
        {
            assert_eq!(len(garbage), Err(Garbage), "{}", garbage.escape_ascii());
        }
    }

    #[test]
    fn absurd_lengths_are_refused_before_they_are_waited_for() {
        for huge in [&b"$1048577\r\n"[..], b"*1048577\r\n", b"$99999999999999999999\r\n", b"$x\r\n"]
        {
            assert_eq!(len(huge), Err(Garbage), "{}", huge.escape_ascii());
        }
        assert_eq!(len(&[b'+'; LINE_MAX]), Err(Garbage));
        let nested: Vec<u8> = b"*1000000\r\n".repeat(3);
        assert_eq!(len(&nested), Err(Garbage));
    }

    #[test]
    fn the_fast_path_reads_what_the_parser_reads() {
        for reply in [&b"+OK\r\n"[..], b"$-1\r\n", b"_\r\n", b":1\r\n"] {
            assert_eq!(parse(reply), redis::parse_redis_value(reply).map_err(|_| Garbage));
        }
    }

    #[test]
    fn a_grant_without_the_parser_is_one_with_it() {
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
        let said = |verb, reply: &[u8]| answer(verb, parse(reply)?);
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

    #[test]
    fn a_key_that_is_held_is_answered_with_its_value_and_what_is_left() {
        let said = |verb, reply: &[u8]| answer(verb, parse(reply).unwrap());
        let fifty = Some(Duration::from_millis(50));
        for verb in [EXTEND, Verb::Inspect] {
            assert_eq!(
                said(verb, b"*2\r\n$1\r\na\r\n:50\r\n"),
                Ok(Answer::held(Some(b"a"), fifty))
            );
            assert_eq!(said(verb, b"*2\r\n$1\r\na\r\n:-1\r\n"), Ok(Answer::held(Some(b"a"), None)));
            let other_type = said(verb, b"*2\r\n$-1\r\n:50\r\n");
            assert_eq!(other_type, Ok(Answer::held(None, fifty)), "it is no grant");
            assert_eq!(said(verb, b"*2\r\n$-1\r\n:-2\r\n"), Err(Garbage));
        }
        assert_eq!(said(Verb::Inspect, b":0\r\n"), Ok(Answer::new(Verdict::Free)));
        assert_eq!(said(Verb::Inspect, b":1\r\n"), Err(Garbage));
    }

    #[test]
    fn a_server_that_is_no_master_any_more_is_known_by_its_error() {
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
}
