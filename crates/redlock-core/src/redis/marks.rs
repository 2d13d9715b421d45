//! Requests about marks, and their answers. See rule M4 of `docs/PROTOCOL.md`.

use redis::Value;

use super::resp::{Garbage, pack};
use crate::packed::Packed;
use crate::{Answer, Cause, Mark, Marked, Op, Verb};

const READ: &str = concat!(include_str!("scripts/mark.lua"), include_str!("scripts/read_mark.lua"));
const RAISE: &str =
    concat!(include_str!("scripts/mark.lua"), include_str!("scripts/raise_mark.lua"));

/// Builds the request. It always carries the text of its script, because these requests are rare,
/// and a call repeated after `NOSCRIPT` would arrive after later requests.
pub(super) fn request(op: &Op) -> Packed {
    match (op.verb(), op.mark()) {
        (Verb::RaiseMark { px }, Some(Mark { at, fire, by })) => {
            let [mut ats, mut fires, mut pxs] = [itoa::Buffer::new(); 3];
            let label = by.as_ref().map_or(Mark::NOBODY, |label| label.as_str());
            let numbers = [ats.format(*at), fires.format(*fire)].map(str::as_bytes);
            let [at, fire] = numbers;
            let px = pxs.format(px).as_bytes();
            pack(&[b"EVAL", RAISE.as_bytes(), b"1", op.key(), at, fire, label.as_bytes(), px])
        }
        _ => pack(&[b"EVAL", READ.as_bytes(), b"1", op.key()]),
    }
}

/// Parses the answer to a request about a mark: `{mark, seconds, microseconds}`.
pub(super) fn read(reply: Vec<Value>) -> Result<Answer, Garbage> {
    let Ok([value, seconds, micros]) = <[Value; 3]>::try_from(reply) else { return Err(Garbage) };
    let time = number(&seconds)?.checked_mul(1_000).ok_or(Garbage)? + number(&micros)? / 1_000;
    let mark = match value {
        Value::Nil => None,
        Value::BulkString(value) => match Mark::parse(&value) {
            Some(mark) => Some(mark),
            // The script has checked the value: only a label with characters that the script does
            // not check gets here.
            None => {
                return Ok(Answer::unknown(Cause::ErrorReply("ERR the mark is malformed".into())));
            }
        },
        _ => return Err(Garbage),
    };
    Ok(Answer::granted().with_marked(Marked { mark, time }))
}

fn number(digits: &Value) -> Result<u64, Garbage> {
    let Value::BulkString(digits) = digits else { return Err(Garbage) };
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Garbage)
}
