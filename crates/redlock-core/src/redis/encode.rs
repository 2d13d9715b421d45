//! The form of an [`Op`] on the wire.

use std::sync::LazyLock;

use redis::Script;

use super::namespace::Set;
use super::resp::{add, begin, pack};
use super::{marks, queues};
use crate::packed::{Packed, Room};
use crate::server_error::ServerError;
use crate::{Bid, Op, Verb};

/// The scripts called by digest. `Text::number` is their index. `shown.lua` is the shared end of
/// all scripts that reply with the value of the key.
macro_rules! texts {
    ($($name:ident: $number:literal, $keys:literal, $code:expr;)*) => {
        $(static $name: LazyLock<Text> = LazyLock::new(|| Text::new($number, $code, $keys));)*
    };
}

texts! {
    EXTEND: 0, 1, concat!(include_str!("scripts/extend.lua"), include_str!("scripts/shown.lua"));
    RESUME: 1, 2, concat!(include_str!("scripts/resume.lua"), include_str!("scripts/shown.lua"));
    RELEASE: 2, 1, include_str!("scripts/release.lua");
    INSPECT: 3, 1, concat!(include_str!("scripts/inspect.lua"), include_str!("scripts/shown.lua"));
    ENTER: 4, 2, queues::ENTER;
    LEAVE: 5, 2, queues::LEAVE;
    TAKE: 6, 1, queues::TAKE;
    RESERVE: 7, 1, queues::RESERVE;
}

/// A script, and the request that runs it on a server that has loaded it.
struct Text {
    /// The number of the script.
    number: u8,
    code: &'static str,
    /// How many keys it has.
    keys: u8,
    /// `EVALSHA digest keys`, packed: the same in each call.
    by_digest: Packed,
}

impl Text {
    fn new(number: u8, code: &'static str, keys: u8) -> Self {
        let by_digest = begin_call(b"EVALSHA", Script::new(code).get_hash().as_bytes(), keys);
        Self { number, code, keys, by_digest }
    }

    /// `EVAL code keys`, packed.
    fn by_text(&self) -> Packed {
        begin_call(b"EVAL", self.code.as_bytes(), self.keys)
    }
}

fn begin_call(command: &[u8], script: &[u8], keys: u8) -> Packed {
    let mut packed = Packed::new();
    add(&mut packed, &[command, script, itoa::Buffer::new().format(keys).as_bytes()]);
    packed
}

/// The scripts that one connection has loaded.
///
/// The first call of a script carries its text, which the master remembers. If it carried only the
/// digest, a `NOSCRIPT` reply would force a second call, which would arrive after later requests.
#[derive(Default)]
pub(super) struct Loaded {
    /// One bit for each script.
    scripts: u8,
    /// The server does not have EVALSHA, or does not allow it, so each call carries the text.
    refuses_digests: bool,
}

impl Loaded {
    /// Encodes the request with the script's text, if that has not been sent yet.
    pub(super) fn load(&mut self, op: &Op, set: Option<&Set>) -> Option<Packed> {
        let bit = 1 << script(op, set)?.number;
        let is_loaded = self.scripts & bit != 0;
        self.scripts |= bit;
        if is_loaded && !self.refuses_digests { None } else { by_text(op, set) }
    }

    /// Returns `true` if this error of a call by digest shows that the server did nothing and may
    /// run the text.
    pub(super) fn is_refused(&mut self, error: &str) -> bool {
        let meaning = ServerError::of(error);
        let is_of_command = matches!(meaning, ServerError::Denied | ServerError::UnknownCommand);
        let lacks_evalsha = is_of_command && error.to_ascii_lowercase().contains("evalsha");
        self.refuses_digests |= lacks_evalsha;
        lacks_evalsha || meaning == ServerError::NoScript
    }
}

/// Encodes the request, with scripts named by their digest. `set` is the ballot set if its name is
/// known. Without it, a resume is only an extension.
pub(super) fn by_digest(op: &Op, set: Option<&Set>, out: &mut impl Room) {
    match script(op, set) {
        None if op.verb() == Verb::CountWaiters => {
            out.extend(&pack(&[b"ZCARD", op.key()]));
        }
        None if matches!(op.verb(), Verb::ReadMark | Verb::RaiseMark { .. }) => {
            out.extend(&marks::request(op));
        }
        None => acquire(op, out),
        Some(script) => call(op, set, &script.by_digest, out),
    }
}

/// Encodes the request with the script's text, for a master that has not loaded it or has removed
/// it (`SCRIPT FLUSH`). `None` for a request without a script.
pub(super) fn by_text(op: &Op, set: Option<&Set>) -> Option<Packed> {
    script(op, set).map(|script| {
        let mut packed = Packed::new();
        call(op, set, &script.by_text(), &mut packed);
        packed
    })
}

fn script(op: &Op, set: Option<&Set>) -> Option<&'static Text> {
    match op.verb() {
        Verb::Resume { .. } if set.is_some() => Some(&RESUME),
        Verb::Extend { .. } | Verb::Resume { .. } => Some(&EXTEND),
        Verb::Release => Some(&RELEASE),
        Verb::Inspect | Verb::Watch => Some(&INSPECT),
        Verb::Enter { .. } => Some(&ENTER),
        Verb::Leave { .. } => Some(&LEAVE),
        Verb::Take { .. } => Some(&TAKE),
        Verb::Reserve { .. } => Some(&RESERVE),
        _ => None,
    }
}

/// A server's own command to delete a key if it has a certain value. It costs the server less than
/// half of what a script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Native {
    /// `DELIFEQ key value`: Valkey 9.
    DelIfEq,
    /// `DELEX key IFEQ value`: Redis 8.4.
    DelEx,
}

/// Writes a release as a master's own command.
pub(super) fn natively(op: &Op, native: Native, out: &mut impl Room) {
    match native {
        Native::DelIfEq => {
            out.extend(b"*3\r\n$7\r\nDELIFEQ\r\n");
            add(out, &[op.key(), op.token()]);
        }
        Native::DelEx => {
            out.extend(b"*4\r\n$5\r\nDELEX\r\n");
            add(out, &[op.key(), b"IFEQ", op.token()]);
        }
    }
}

/// Writes a request of one command. Parts that differ between masters are not cached for the
/// others.
pub(super) fn write(op: &Op, set: Option<&Set>, out: &mut Vec<u8>) {
    match op.verb() {
        Verb::Enter { .. } | Verb::Leave { .. } | Verb::Resume { .. } => by_digest(op, set, out),
        _ => out.extend_from_slice(op.packed(whole)),
    }
}

fn whole(op: &Op) -> Packed {
    let mut packed = Packed::new();
    by_digest(op, None, &mut packed);
    packed
}

/// Has the keys that the next command reads tracked: it goes right before a watch.
pub(super) const TRACK_NEXT: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n";

/// Encodes the published protocol, literally: `SET key token NX PX milliseconds`.
pub(super) fn acquire(op: &Op, out: &mut impl Room) {
    const SET: &[u8] = b"*6\r\n$3\r\nSET\r\n";
    const NX_PX: &[u8] = b"$2\r\nNX\r\n$2\r\nPX\r\n";
    let (Verb::Acquire { px } | Verb::GiveBack { px }) = op.verb() else { return };
    out.extend(SET);
    add(out, &[op.key(), op.token()]);
    out.extend(NX_PX);
    add(out, &[itoa::Buffer::new().format(px).as_bytes()]);
}

/// Encodes the call of a script with this beginning, with its keys and arguments.
fn call(op: &Op, set: Option<&Set>, script: &[u8], out: &mut impl Room) {
    match op.verb() {
        Verb::Extend { px } | Verb::Resume { px } => {
            let mut digits = itoa::Buffer::new();
            let px = digits.format(px).as_bytes();
            match (op.bid(), set) {
                (Some(bid), Some(set)) => call_with(op, px, (bid, set), script, out),
                _ => begun(out, script, &[op.key(), op.token(), px]),
            }
        }
        Verb::Release => begun(out, script, &[op.key(), op.token()]),
        // The scripts of the shared queue, and the one that only reads the key.
        _ => queues::arguments(op, |parts| begun(out, script, parts)),
    }
}

/// Encodes the call of a script that also proposes a ballot to this set.
fn call_with(
    op: &Op,
    px: &[u8],
    (Bid { ballot, member }, set): (Bid, &Set),
    script: &[u8],
    out: &mut impl Room,
) {
    let (mut score, mut number) = (itoa::Buffer::new(), itoa::Buffer::new());
    let bid = [score.format(ballot.score()), number.format(member.number())].map(str::as_bytes);
    let keys = [op.key(), &set.name];
    begun(out, script, &[&keys[..], &[op.token(), px], set.options, &bid].concat());
}

/// Encodes a command whose first three parts are already packed.
fn begun(out: &mut impl Room, first: &[u8], parts: &[&[u8]]) {
    begin(out, 3 + parts.len());
    out.extend(first);
    add(out, parts);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    fn text(packed: &[u8]) -> String {
        packed.escape_ascii().to_string()
    }

    #[test]
    fn acquire_is_the_published_command() {
        let op = Op::acquire(*b"orders:42", Token::parse("t").unwrap(), 11_000);
        assert_eq!(
            text(&whole(&op)),
            "*6\\r\\n$3\\r\\nSET\\r\\n$9\\r\\norders:42\\r\\n$1\\r\\nt\\r\\n$2\\r\\nNX\\r\\n\
             $2\\r\\nPX\\r\\n$5\\r\\n11000\\r\\n"
        );
        assert_eq!(by_text(&op, None), None);
    }

    #[test]
    fn release_uses_the_native_command_if_available() {
        let release = Op::release(*b"k", Token::parse("t").unwrap());
        let forms = [Some(Native::DelIfEq), Some(Native::DelEx), None];
        let written = |op: &Op, native: Option<Native>| {
            let mut out = Vec::new();
            match native {
                Some(native) => natively(op, native, &mut out),
                None => write(op, None, &mut out),
            }
            text(&out)
        };
        let [delifeq, delex, script] = forms.map(|native| written(&release, native));
        assert_eq!(delifeq, "*3\\r\\n$7\\r\\nDELIFEQ\\r\\n$1\\r\\nk\\r\\n$1\\r\\nt\\r\\n");
        assert!(
            delex.starts_with("*4\\r\\n$5\\r\\nDELEX\\r\\n$1\\r\\nk\\r\\n$4\\r\\nIFEQ"),
            "{delex}"
        );
        assert!(script.contains("EVALSHA"), "{script}");
    }

    #[test]
    fn the_release_of_an_exit_has_the_same_key_and_token() {
        let (ticket, token) = (crate::QueueTicket::new(1), Token::parse("t").unwrap());
        let exit = crate::Exit {
            queue: crate::SharedQueue::new(b"", &"k".into(), ticket),
            token: Some(token.clone()),
            gives_up_place: false,
            reservation_ms: 1,
            leaving: crate::Leaving::Done,
        };
        let (leave, release) = (Op::leave(*b"k", exit), Op::release(*b"k", token));
        let beside = leave.without_exit();
        assert_eq!((beside.verb(), beside.exit().is_some()), (Verb::Release, false));
        assert_eq!((beside.key(), beside.token()), (release.key(), release.token()));
        assert_eq!(text(&whole(&beside)), text(&whole(&release)));
        assert_eq!(by_text(&beside, None), by_text(&release, None));
        assert!(leave.exit().is_some() && leave.verb() != Verb::Release, "that is what it was");
    }

    #[test]
    fn each_script_is_loaded_once() {
        let (token, mut loaded) = (Token::parse("t").unwrap(), Loaded::default());
        let release = Op::release(*b"k", token.clone());
        assert_eq!(loaded.load(&Op::acquire(*b"k", token, 1), None), None);
        assert_eq!(loaded.load(&release, None), by_text(&release, None));
        assert_eq!(loaded.load(&release, None), None);
        assert!(loaded.load(&Op::inspect(*b"k"), None).is_some());
    }

    #[test]
    fn script_text_is_sent_if_digests_are_refused() {
        let release = Op::release(*b"k", Token::parse("t").unwrap());
        for (error, is_refused, by_digest_again) in [
            ("NOSCRIPT No matching script", true, true),
            ("NOPERM this user has no permissions to run the 'evalsha' command", true, false),
            ("NOPERM User u has no permissions to run the 'evalsha' command", true, false),
            ("ERR unknown command `EVALSHA`", true, false),
            ("NOPERM this user has no permissions to run the 'get' command", false, true),
            ("ERR evalsha", false, true),
        ] {
            let mut loaded = Loaded::default();
            loaded.load(&release, None);
            assert_eq!(loaded.is_refused(error), is_refused, "{error}");
            assert_eq!(loaded.load(&release, None).is_none(), by_digest_again, "{error}");
        }
    }

    #[test]
    fn digest_and_text_calls_have_the_same_arguments() {
        let token = Token::parse("t").unwrap();
        for op in
            [Op::extend(*b"k", token.clone(), 1_000), Op::release(*b"k", token), Op::inspect(*b"k")]
        {
            let (digest, script) = (text(&whole(&op)), text(&by_text(&op, None).unwrap()));
            assert!(digest.contains("EVALSHA\\r\\n$40\\r\\n"), "{digest}");
            let arguments = digest.split_at(digest.find("$1\\r\\n1").unwrap()).1;
            assert!(script.contains("EVAL\\r\\n") && script.ends_with(arguments), "{script}");
        }
    }
}
