//! How an [`Op`] looks on the wire.

use std::sync::LazyLock;

use redis::Script;

use super::ballots::Set;
use super::{marks, queues};
use crate::packed::Packed;
use crate::{Bid, Op, Verb};

/// The scripts that are called by their digest; `Text::number` counts them.
macro_rules! texts {
    ($($name:ident: $number:literal, $keys:literal, $code:expr;)*) => {
        $(static $name: LazyLock<Text> = LazyLock::new(|| Text::new($number, $code, $keys));)*
    };
}

texts! {
    EXTEND: 0, 1, include_str!("scripts/extend.lua");
    RESUME: 1, 2, include_str!("scripts/resume.lua");
    RELEASE: 2, 1, include_str!("scripts/release.lua");
    INSPECT: 3, 1, include_str!("scripts/inspect.lua");
    ENTER: 4, 2, queues::ENTER;
    LEAVE: 5, 2, queues::LEAVE;
    TAKE: 6, 1, queues::TAKE;
    RESERVE: 7, 1, queues::RESERVE;
}

/// A script, and the request that runs it on a server that remembers it.
struct Text {
    /// Which of the scripts it is.
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

/// Which scripts one connection has loaded.
///
/// The first call of each carries its text, which the master remembers. Were it answered with
/// `NOSCRIPT` instead, its second sending would come behind requests that were submitted later.
#[derive(Default)]
pub(super) struct Loaded {
    /// One bit for each script.
    scripts: u8,
}

impl Loaded {
    /// The request with the script's text, if that has not been sent yet.
    pub(super) fn load(&mut self, op: &Op, set: Option<&Set>) -> Option<Packed> {
        let bit = 1 << script(op, set)?.number;
        let is_loaded = self.scripts & bit != 0;
        self.scripts |= bit;
        if is_loaded { None } else { by_text(op, set) }
    }
}

/// The request, with scripts named by their digest: a master that has loaded them knows them.
/// `set` is the ballot set, as far as its name is known: without it, a resume is an extension.
pub(super) fn by_digest(op: &Op, set: Option<&Set>) -> Packed {
    match script(op, set) {
        None if op.verb() == Verb::CountWaiters => pack(&[b"ZCARD", op.key()]),
        None if matches!(op.verb(), Verb::ReadMark | Verb::RaiseMark { .. }) => marks::request(op),
        None => acquire(op),
        Some(script) => call(op, set, &script.by_digest),
    }
}

/// The request with the script's text, for a master that does not know it or has forgotten it
/// (`SCRIPT FLUSH`); none for a request that is no script.
pub(super) fn by_text(op: &Op, set: Option<&Set>) -> Option<Packed> {
    script(op, set).map(|script| call(op, set, &script.by_text()))
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
    DelIfEq = 1,
    /// `DELEX key IFEQ value`: Redis 8.4.
    DelEx = 2,
}

/// A request as it goes to a master that has such a command, or has none.
pub(super) fn packed(op: &Op, native: Option<Native>) -> &[u8] {
    match native {
        Some(native) if op.verb() == Verb::Release => {
            op.packed(native as usize, |op| natively(op, native))
        }
        _ => op.packed(0, |op| by_digest(op, None)),
    }
}

fn natively(op: &Op, native: Native) -> Packed {
    match native {
        Native::DelIfEq => pack(&[b"DELIFEQ", op.key(), op.token()]),
        Native::DelEx => pack(&[b"DELEX", op.key(), b"IFEQ", op.token()]),
    }
}

/// Has the keys that the next command reads tracked: it goes right before a watch.
pub(super) const TRACK_NEXT: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n";

/// The published protocol, literally: `SET key token NX PX milliseconds`.
pub(super) fn acquire(op: &Op) -> Packed {
    const SET: &[u8] = b"*6\r\n$3\r\nSET\r\n";
    const NX_PX: &[u8] = b"$2\r\nNX\r\n$2\r\nPX\r\n";
    let (Verb::Acquire { px } | Verb::GiveBack { px }) = op.verb() else {
        return Packed::new();
    };
    let mut digits = itoa::Buffer::new();
    let (named, px): (&[&[u8]], &[&[u8]]) =
        (&[op.key(), op.token()], &[digits.format(px).as_bytes()]);
    let mut packed = Packed::new();
    packed.extend(SET);
    add(&mut packed, named);
    packed.extend(NX_PX);
    add(&mut packed, px);
    packed
}

/// The call of a script that begins so, with its keys and arguments.
fn call(op: &Op, set: Option<&Set>, script: &[u8]) -> Packed {
    match op.verb() {
        Verb::Extend { px } | Verb::Resume { px } => {
            let mut digits = itoa::Buffer::new();
            let px = digits.format(px).as_bytes();
            match (op.bid(), set) {
                (Some(bid), Some(set)) => call_with(op, px, bid, set, script),
                _ => begun(script, &[op.key(), op.token(), px]),
            }
        }
        Verb::Release => begun(script, &[op.key(), op.token()]),
        // The others have no script but the look.
        _ => queues::arguments(op, |parts| begun(script, parts)),
    }
}

/// The same of one that proposes a ballot to this set, too.
fn call_with(op: &Op, px: &[u8], Bid { ballot, member }: Bid, set: &Set, script: &[u8]) -> Packed {
    let (mut score, mut number) = (itoa::Buffer::new(), itoa::Buffer::new());
    let bid = [score.format(ballot.score()), number.format(member.number())].map(str::as_bytes);
    let keys = [op.key(), set.name()];
    begun(script, &[&keys[..], &[op.token(), px], set.options(), &bid].concat())
}

/// A command whose first three parts are packed.
fn begun(first: &[u8], parts: &[&[u8]]) -> Packed {
    let mut packed = Packed::new();
    begin(&mut packed, 3 + parts.len());
    packed.extend(first);
    add(&mut packed, parts);
    packed
}

/// Packs one command. The client crate gathers its parts first, which takes four times as long, and
/// this is most of what sending a request costs.
pub(super) fn pack(parts: &[&[u8]]) -> Packed {
    head(parts.len(), parts)
}

/// The first parts of a command of `words` parts.
pub(super) fn head(words: usize, parts: &[&[u8]]) -> Packed {
    let mut packed = Packed::new();
    begin(&mut packed, words);
    add(&mut packed, parts);
    packed
}

/// The last parts of a command, and the whole command `next` behind it.
pub(super) fn tail(parts: &[&[u8]], next: &[&[u8]]) -> Packed {
    let mut packed = Packed::new();
    add(&mut packed, parts);
    if !next.is_empty() {
        begin(&mut packed, next.len());
        add(&mut packed, next);
    }
    packed
}

fn begin(packed: &mut Packed, words: usize) {
    begin_line(packed, b'*', words);
}

fn add(packed: &mut Packed, parts: &[&[u8]]) {
    for part in parts {
        let digit = |number: usize| b'0' + (number % 10) as u8;
        let line = [b'$', digit(part.len() / 10), digit(part.len()), b'\r', b'\n'];
        match part.len() {
            // Nearly every part: it is written in one piece.
            10..100 => {
                let (begin, rest) =
                    packed.room(line.len() + part.len() + 2).split_at_mut(line.len());
                let (middle, end) = rest.split_at_mut(part.len());
                begin.copy_from_slice(&line);
                middle.copy_from_slice(part);
                end.copy_from_slice(b"\r\n");
            }
            _ => {
                begin_line(packed, b'$', part.len());
                packed.extend(part);
                packed.extend(b"\r\n");
            }
        }
    }
}

/// The line before a command or a part of one: how many words or bytes follow.
fn begin_line(packed: &mut Packed, sign: u8, number: usize) {
    match number {
        0..10 => packed.extend(&[sign, b'0' + number as u8, b'\r', b'\n']),
        _ => {
            packed.extend(&[sign]);
            packed.extend(itoa::Buffer::new().format(number).as_bytes());
            packed.extend(b"\r\n");
        }
    }
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
            text(&by_digest(&op, None)),
            "*6\\r\\n$3\\r\\nSET\\r\\n$9\\r\\norders:42\\r\\n$1\\r\\nt\\r\\n$2\\r\\nNX\\r\\n\
             $2\\r\\nPX\\r\\n$5\\r\\n11000\\r\\n"
        );
        assert_eq!(by_text(&op, None), None);
    }

    #[test]
    fn what_is_packed_is_what_the_client_crate_packs() {
        for parts in [vec!["PING"], vec!["SET", "", "t"], vec!["EVAL", EXTEND.code, "1", "\r\n"]] {
            let bytes: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
            let packed = redis::cmd(parts[0]).arg(&parts[1..]).get_packed_command();
            assert_eq!(text(&pack(&bytes)), text(&packed));
        }
    }

    #[test]
    fn a_release_is_one_command_where_the_master_has_one() {
        let release = Op::release(*b"k", Token::parse("t").unwrap());
        let forms = [Some(Native::DelIfEq), Some(Native::DelEx), None];
        let [delifeq, delex, script] = forms.map(|native| text(packed(&release, native)));
        assert_eq!(delifeq, "*3\\r\\n$7\\r\\nDELIFEQ\\r\\n$1\\r\\nk\\r\\n$1\\r\\nt\\r\\n");
        assert!(
            delex.starts_with("*4\\r\\n$5\\r\\nDELEX\\r\\n$1\\r\\nk\\r\\n$4\\r\\nIFEQ"),
            "{delex}"
        );
        assert!(script.contains("EVALSHA"), "{script}");
        let extend = Op::extend(*b"k", Token::parse("t").unwrap(), 1);
        assert!(text(packed(&extend, Some(Native::DelEx))).contains("EVALSHA"));
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
    fn scripts_are_called_by_digest_and_by_text_with_the_same_arguments() {
        let token = Token::parse("t").unwrap();
        for op in
            [Op::extend(*b"k", token.clone(), 1_000), Op::release(*b"k", token), Op::inspect(*b"k")]
        {
            let (digest, script) =
                (text(&by_digest(&op, None)), text(&by_text(&op, None).unwrap()));
            assert!(digest.contains("EVALSHA\\r\\n$40\\r\\n"), "{digest}");
            let arguments = digest.split_at(digest.find("$1\\r\\n1").unwrap()).1;
            assert!(script.contains("EVAL\\r\\n") && script.ends_with(arguments), "{script}");
        }
    }
}
