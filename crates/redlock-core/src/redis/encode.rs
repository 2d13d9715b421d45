//! How an [`Op`] looks on the wire.

use std::sync::LazyLock;

use redis::Script;

use super::ballots::Set;
use super::marks;
use crate::{Bid, Op, Verb};

static EXTEND: LazyLock<Text> = LazyLock::new(|| Text::new(include_str!("scripts/extend.lua"), 1));
static RESUME: LazyLock<Text> = LazyLock::new(|| Text::new(include_str!("scripts/resume.lua"), 2));
static RELEASE: LazyLock<Text> =
    LazyLock::new(|| Text::new(include_str!("scripts/release.lua"), 1));
static INSPECT: LazyLock<Text> =
    LazyLock::new(|| Text::new(include_str!("scripts/inspect.lua"), 1));

/// A script, and the request that runs it on a server that remembers it.
struct Text {
    code: &'static str,
    /// How many keys it has.
    keys: u8,
    /// `EVALSHA digest keys`, packed: the same in each call.
    by_digest: Vec<u8>,
}

impl Text {
    fn new(code: &'static str, keys: u8) -> Self {
        let by_digest = begin_call(b"EVALSHA", Script::new(code).get_hash().as_bytes(), keys);
        Self { code, keys, by_digest }
    }

    /// `EVAL code keys`, packed.
    fn by_text(&self) -> Vec<u8> {
        begin_call(b"EVAL", self.code.as_bytes(), self.keys)
    }
}

fn begin_call(command: &[u8], script: &[u8], keys: u8) -> Vec<u8> {
    let mut packed = Vec::new();
    add(&mut packed, &[command, script, itoa::Buffer::new().format(keys).as_bytes()]);
    packed
}

/// Which scripts one connection has loaded.
///
/// The first call of each carries its text, which the master remembers. Were it answered with
/// `NOSCRIPT` instead, its second sending would come behind requests that were submitted later.
#[derive(Default)]
pub(super) struct Loaded {
    extend: bool,
    resume: bool,
    release: bool,
    inspect: bool,
}

impl Loaded {
    /// The request with the script's text, if that has not been sent yet.
    pub(super) fn load(&mut self, op: &Op, set: Option<&Set>) -> Option<Vec<u8>> {
        let loaded = match op.verb() {
            Verb::Resume { .. } if set.is_some() => &mut self.resume,
            Verb::Extend { .. } | Verb::Resume { .. } => &mut self.extend,
            Verb::Release => &mut self.release,
            Verb::Inspect | Verb::Watch => &mut self.inspect,
            _ => return None,
        };
        if std::mem::replace(loaded, true) { None } else { by_text(op, set) }
    }
}

/// The request, with scripts named by their digest: a master that has loaded them knows them.
/// `set` is the ballot set, as far as its name is known: without it, a resume is an extension.
pub(super) fn by_digest(op: &Op, set: Option<&Set>) -> Vec<u8> {
    match script(op, set) {
        None if matches!(op.verb(), Verb::ReadMark | Verb::RaiseMark { .. }) => marks::request(op),
        None => acquire(op),
        Some(script) => call(op, set, &script.by_digest),
    }
}

/// The request with the script's text, for a master that does not know it or has forgotten it
/// (`SCRIPT FLUSH`); none for a request that is no script.
pub(super) fn by_text(op: &Op, set: Option<&Set>) -> Option<Vec<u8>> {
    script(op, set).map(|script| call(op, set, &script.by_text()))
}

fn script(op: &Op, set: Option<&Set>) -> Option<&'static Text> {
    match op.verb() {
        Verb::Resume { .. } if set.is_some() => Some(&RESUME),
        Verb::Extend { .. } | Verb::Resume { .. } => Some(&EXTEND),
        Verb::Release => Some(&RELEASE),
        Verb::Inspect | Verb::Watch => Some(&INSPECT),
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

fn natively(op: &Op, native: Native) -> Vec<u8> {
    match native {
        Native::DelIfEq => pack(&[b"DELIFEQ", op.key(), op.token()]),
        Native::DelEx => pack(&[b"DELEX", op.key(), b"IFEQ", op.token()]),
    }
}

/// Has the keys that the next command reads tracked: it goes right before a watch.
pub(super) const TRACK_NEXT: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n";

/// The published protocol, literally: `SET key token NX PX milliseconds`.
pub(super) fn acquire(op: &Op) -> Vec<u8> {
    const SET: &[u8] = b"*6\r\n$3\r\nSET\r\n";
    const NX_PX: &[u8] = b"$2\r\nNX\r\n$2\r\nPX\r\n";
    let (Verb::Acquire { px } | Verb::GiveBack { px }) = op.verb() else { return Vec::new() };
    let mut digits = itoa::Buffer::new();
    let (named, px): (&[&[u8]], &[&[u8]]) =
        (&[op.key(), op.token()], &[digits.format(px).as_bytes()]);
    let mut packed = Vec::with_capacity(SET.len() + room(named) + NX_PX.len() + room(px));
    packed.extend_from_slice(SET);
    add(&mut packed, named);
    packed.extend_from_slice(NX_PX);
    add(&mut packed, px);
    packed
}

/// The call of a script that begins so, with its keys and arguments.
fn call(op: &Op, set: Option<&Set>, script: &[u8]) -> Vec<u8> {
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
        _ => begun(script, &[op.key()]),
    }
}

/// The same of one that proposes a ballot to this set, too.
fn call_with(op: &Op, px: &[u8], Bid { ballot, member }: Bid, set: &Set, script: &[u8]) -> Vec<u8> {
    let (mut score, mut number) = (itoa::Buffer::new(), itoa::Buffer::new());
    let bid = [score.format(ballot.score()), number.format(member.number())].map(str::as_bytes);
    let keys = [op.key(), set.name()];
    begun(script, &[&keys[..], &[op.token(), px], set.options(), &bid].concat())
}

/// A command whose first three parts are packed.
fn begun(first: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(BETWEEN + first.len() + room(parts));
    begin(&mut packed, 3 + parts.len());
    packed.extend_from_slice(first);
    add(&mut packed, parts);
    packed
}

/// Packs one command, in one allocation. The client crate gathers its parts first, which takes
/// four times as long, and this is most of what sending a request costs.
pub(super) fn pack(parts: &[&[u8]]) -> Vec<u8> {
    head(parts.len(), parts)
}

/// The first parts of a command of `words` parts.
pub(super) fn head(words: usize, parts: &[&[u8]]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(BETWEEN + room(parts));
    begin(&mut packed, words);
    add(&mut packed, parts);
    packed
}

/// The last parts of a command, and the whole command `next` behind it.
pub(super) fn tail(parts: &[&[u8]], next: &[&[u8]]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(room(parts) + BETWEEN + room(next));
    add(&mut packed, parts);
    if !next.is_empty() {
        begin(&mut packed, next.len());
        add(&mut packed, next);
    }
    packed
}

/// Room for the line that says how long a part is, and for the end of the part.
const BETWEEN: usize = 1 + 20 + 2 + 2;

fn room(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| BETWEEN + part.len()).sum()
}

fn begin(packed: &mut Vec<u8>, words: usize) {
    packed.push(b'*');
    packed.extend_from_slice(itoa::Buffer::new().format(words).as_bytes());
    packed.extend_from_slice(b"\r\n");
}

fn add(packed: &mut Vec<u8>, parts: &[&[u8]]) {
    let mut digits = itoa::Buffer::new();
    for part in parts {
        packed.push(b'$');
        packed.extend_from_slice(digits.format(part.len()).as_bytes());
        packed.extend_from_slice(b"\r\n");
        packed.extend_from_slice(part);
        packed.extend_from_slice(b"\r\n");
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
