//! RESP, the language of the server: how a command is written, and where a reply ends and what it
//! contains. Nothing here knows our requests.

use redis::Value;

use crate::Cause;
use crate::packed::{Packed, Room};
use crate::server_error::{self, ServerError};

/// The end of a line.
const END: &[u8] = b"\r\n";

/// Packs one command. The client crate gathers its parts first, which takes four times as long, and
/// this is most of what sending a request costs.
pub(super) fn pack(parts: &[&[u8]]) -> Packed {
    head(parts.len(), parts)
}

/// Writes the first parts of a command of `words` parts.
pub(super) fn head(words: usize, parts: &[&[u8]]) -> Packed {
    let mut packed = Packed::new();
    begin(&mut packed, words);
    add(&mut packed, parts);
    packed
}

/// Writes the last parts of a command, followed by the whole command `next`.
pub(super) fn tail(out: &mut impl Room, parts: &[&[u8]], next: &[&[u8]]) {
    add(out, parts);
    if !next.is_empty() {
        begin(out, next.len());
        add(out, next);
    }
}

pub(super) fn begin(out: &mut impl Room, words: usize) {
    begin_line(out, b'*', words);
}

pub(super) fn add(out: &mut impl Room, parts: &[&[u8]]) {
    for part in parts {
        let is_added = short(part.len()).is_some_and(|head| out.extend_three(&head, part, END));
        if !is_added {
            begin_line(out, b'$', part.len());
            out.extend(part);
            out.extend(END);
        }
    }
}

/// Returns the line before a part of `len` bytes, if `len` has two digits.
#[inline]
fn short(len: usize) -> Option<[u8; 5]> {
    // A number below 100 has no more than two digits, each of which is a byte.
    let digit = |number: usize| b'0' + (number % 10) as u8;
    (10..100).contains(&len).then(|| [b'$', digit(len / 10), digit(len), b'\r', b'\n'])
}

/// Writes the line before a command or a part of one: the number of words or bytes that follow.
#[inline]
fn begin_line(out: &mut impl Room, sign: u8, number: usize) {
    // A number below 100 has no more than two digits, each of which is a byte.
    let digit = |number: usize| b'0' + (number % 10) as u8;
    match number {
        0..10 => out.extend(&[sign, digit(number), b'\r', b'\n']),
        10..100 => out.extend(&[sign, digit(number / 10), digit(number), b'\r', b'\n']),
        _ => {
            out.extend(&[sign]);
            out.extend(itoa::Buffer::new().format(number).as_bytes());
            out.extend(END);
        }
    }
}

/// Bytes that are not a Redis reply, or a reply that none of our commands has. The connection can
/// no longer be used, because the start of the next reply is unknown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Garbage;

/// The longest accepted reply. `INFO` has some thousand bytes, and all other replies are shorter.
const LEN_MAX: usize = 1 << 20;
/// The longest first line of a reply: an error message, or a length.
const LINE_MAX: usize = 1 << 16;

/// Returns the length of the first reply in `bytes`, or `None` if it is incomplete. A push or an
/// attribute is measured like a reply, see [`is_aside`].
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
            // An attribute precedes a value and is not one itself.
            b'|' => missing += 2 * count(line)?.unwrap_or(0) + usize::from(!is_first),
            _ => return Err(Garbage),
        }
        if at + missing > LEN_MAX {
            return Err(Garbage);
        }
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// Returns `true` if this answers no request: a push, or an attribute of the next reply or push.
pub(super) fn is_aside(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'>' | b'|'))
}

/// Returns the first line without its end, or `None` if it is incomplete.
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

/// Returns `true` if this can still become a reply, so that a server other than Redis is recognized
/// immediately.
fn plausible(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|byte| b"+-:_#,($=!*~>%|".contains(byte))
}

/// Parses the number after the type byte. `None` for a null (`-1`).
fn count(line: &[u8]) -> Result<Option<usize>, Garbage> {
    let digits = str::from_utf8(&line[1..]).map_err(|_| Garbage)?;
    if digits == "-1" {
        return Ok(None);
    }
    let count: usize = digits.parse().map_err(|_| Garbage)?;
    if count > LEN_MAX { Err(Garbage) } else { Ok(Some(count)) }
}

/// Parses a push as a value. `None` for an attribute.
pub(super) fn push(aside: &[u8]) -> Result<Option<Value>, Garbage> {
    let is_push = aside.starts_with(b">");
    let parse = || redis::parse_redis_value(aside).map(plain).map_err(|_| Garbage);
    is_push.then(parse).transpose()
}

pub(super) const OK: &[u8] = b"+OK\r\n";
pub(super) const ONE: &[u8] = b":1\r\n";
pub(super) const ZERO: &[u8] = b":0\r\n";
/// The null reply, in each version of the protocol.
pub(super) const NILS: [&[u8]; 2] = [b"$-1\r\n", b"_\r\n"];

/// Parses one whole reply. The usual replies to a lock need no parser.
pub(super) fn parse(reply: &[u8]) -> Result<Value, Garbage> {
    match reply {
        OK => Ok(Value::Okay),
        nil if NILS.contains(&nil) => Ok(Value::Nil),
        ONE => Ok(Value::Int(1)),
        ZERO => Ok(Value::Int(0)),
        // The value that follows the reply of a SET.
        [b'$', ..] => Ok(element(reply).ok_or(Garbage)?.0),
        // The client's parser clears eight kilobytes for each reply, and each release of a key with
        // a queue is answered with a short list.
        _ => match flat(reply) {
            Some(list) => Ok(list),
            None => redis::parse_redis_value(reply).map(plain).map_err(|_| Garbage),
        },
    }
}

/// Parses a list of numbers and texts. `None` for any other reply.
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

/// Parses the first element in `bytes`, and returns it with the bytes that follow.
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

/// Returns the length of the text that `bytes` starts with, and the bytes after its first line.
fn text_len(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let head = line(bytes).ok()??;
    let len = count(head).ok()?.filter(|_| head[0] == b'$')?;
    Some((len, bytes.get(head.len() + 2..)?))
}

/// Removes the attributes of the value's elements.
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

/// Returns the bytes after this value, or `None` if `bytes` does not start with it.
pub(super) fn behind<'a>(bytes: &'a [u8], value: &[u8]) -> Option<&'a [u8]> {
    let rest = match bytes {
        // Most tokens are as long as two digits say, with their label too.
        [b'$', tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', rest @ ..] => {
            let len = usize::from(tens - b'0') * 10 + usize::from(ones - b'0');
            (len == value.len()).then_some(rest)?
        }
        _ => {
            let (len, rest) = text_len(bytes)?;
            (len == value.len()).then_some(rest)?
        }
    };
    rest.strip_prefix(value)?.strip_prefix(b"\r\n")
}

/// Returns the bytes after a value of any content, or after a null.
pub(super) fn behind_value(bytes: &[u8]) -> Option<&[u8]> {
    if !matches!(bytes.first(), Some(b'$' | b'_')) {
        return None;
    }
    let len = len(bytes).ok().flatten()?;
    bytes.get(len..)
}

/// Returns `true` if a command was refused because of the type of a key.
pub(super) fn is_of_another_type(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if kind(error) == ServerError::WrongType)
}

/// Converts an error reply to a cause.
pub(super) fn refusal(error: &redis::ServerError) -> Cause {
    Cause::of_error_reply(message(error))
}

/// Classifies an error reply.
pub(super) fn kind(error: &redis::ServerError) -> ServerError {
    ServerError::of(&message(error))
}

/// Returns an error reply as one line of text.
pub(super) fn message(error: &redis::ServerError) -> String {
    server_error::message(error.code(), error.details())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Every reply type, some nested, each exactly one reply.
    pub(in crate::redis) const REPLIES: [&[u8]; 18] = [
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
        // An attribute is not a reply but precedes one. Inside a reply it is not an element.
        b"|1\r\n+ttl\r\n:3600\r\n",
        b"*2\r\n|1\r\n+ttl\r\n:3600\r\n$1\r\na\r\n:5\r\n",
    ];

    #[test]
    fn packed_bytes_match_the_redis_crate() {
        for parts in [vec!["PING"], vec!["SET", "", "t"], vec!["EVAL", "return 1", "1", "\r\n"]] {
            let bytes: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
            let packed = redis::cmd(parts[0]).arg(&parts[1..]).get_packed_command();
            assert_eq!(*pack(&bytes), *packed);
        }
    }

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
    fn the_bytes_after_a_reply_are_kept() {
        for (first, second) in REPLIES.iter().zip(REPLIES.iter().rev()) {
            assert_eq!(len(&[*first, *second].concat()), Ok(Some(first.len())));
        }
    }

    #[test]
    fn other_servers_are_recognized_by_their_first_bytes() {
        for garbage in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"S", b"\x15\x03", b"\r\n", b"+a\rb"]
        {
            assert_eq!(len(garbage), Err(Garbage), "{}", garbage.escape_ascii());
        }
    }

    #[test]
    fn absurd_lengths_are_refused_immediately() {
        for huge in [&b"$1048577\r\n"[..], b"*1048577\r\n", b"$99999999999999999999\r\n", b"$x\r\n"]
        {
            assert_eq!(len(huge), Err(Garbage), "{}", huge.escape_ascii());
        }
        assert_eq!(len(&[b'+'; LINE_MAX]), Err(Garbage));
        let nested: Vec<u8> = b"*1000000\r\n".repeat(3);
        assert_eq!(len(&nested), Err(Garbage));
    }

    #[test]
    fn fast_path_and_parser_agree() {
        for reply in [&b"+OK\r\n"[..], b"$-1\r\n", b"_\r\n", b":1\r\n"] {
            assert_eq!(parse(reply), redis::parse_redis_value(reply).map_err(|_| Garbage));
        }
    }

    #[test]
    fn value_of_any_length_is_found_when_complete() {
        for len in [0, 1, 9, 10, 36, 99, 100, 256] {
            let value = vec![b'v'; len];
            let bytes = [format!("${len}\r\n").as_bytes(), &value, b"\r\nrest"].concat();
            assert_eq!(behind(&bytes, &value), Some(&b"rest"[..]), "{len} bytes");
            for cut in 0..bytes.len() - b"rest".len() {
                assert_eq!(behind(&bytes[..cut], &value), None, "{cut} of {len} bytes");
            }
            let other = vec![b'v'; len + 1];
            assert_eq!(behind(&bytes, &other), None, "{len} bytes are not one byte more");
        }
        for bytes in [&b"$-1\r\n"[..], b"_\r\n", b":1\r\n", b"$1\r\nw\r\n"] {
            assert_eq!(behind(bytes, b"v"), None, "{}", bytes.escape_ascii());
        }
    }
}
