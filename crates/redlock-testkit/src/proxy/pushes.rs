//! Pushes, taken out of what a server sends.

/// How a server begins the report that tracked keys have changed (RESP3).
const HEAD: &[u8] = b">2\r\n$10\r\ninvalidate\r\n";

/// A filter for a stream of replies and pushes that passes only the replies.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    /// Bytes that may be the beginning of a push, until the rest of it has arrived.
    kept: Vec<u8>,
}

impl Pushes {
    /// The bytes to pass on when these bytes arrive. Without `drops` these are all.
    pub(super) fn filter(&mut self, bytes: &[u8], drops: bool) -> Vec<u8> {
        self.kept.extend_from_slice(bytes);
        let mut passed = Vec::new();
        while let Some(at) = self.kept.windows(HEAD.len()).position(|window| window == HEAD) {
            let Some(len) = body(&self.kept[at + HEAD.len()..]).filter(|_| drops) else { break };
            passed.extend(self.kept.drain(..at));
            self.kept.drain(..HEAD.len() + len);
        }
        let whole = if drops { self.begins_at() } else { self.kept.len() };
        passed.extend(self.kept.drain(..whole));
        passed
    }

    /// Returns the position of a push that has not arrived completely.
    fn begins_at(&self) -> usize {
        let may_begin = |at: &usize| {
            let rest = &self.kept[*at..];
            HEAD.starts_with(rest) || rest.starts_with(HEAD)
        };
        (0..self.kept.len()).find(may_begin).unwrap_or(self.kept.len())
    }
}

/// Returns the length of the keys after the head: `*1` and one text, or `_` for all keys. `None` if
/// they have not arrived.
fn body(bytes: &[u8]) -> Option<usize> {
    let (first, line) = line(bytes, 0)?;
    if first == b"_" {
        return Some(line);
    }
    let (length, text) = self::line(bytes, line)?;
    let length: usize = str::from_utf8(length.strip_prefix(b"$")?).ok()?.parse().ok()?;
    let end = text + length + 2;
    (end <= bytes.len()).then_some(end)
}

/// The line that begins there, and where the next one does.
fn line(bytes: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let length = bytes.get(from..)?.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[from..from + length], from + length + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] =
        b"+OK\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\nk\r\n\r\n$4\r\n>2\r\n\r\n\
        >2\r\n$10\r\ninvalidate\r\n_\r\n:1\r\n";
    const REPLIES: &[u8] = b"+OK\r\n$4\r\n>2\r\n\r\n:1\r\n";

    fn filtered(pieces: &[&[u8]], drops: bool) -> Vec<u8> {
        let mut pushes = Pushes::default();
        pieces.iter().flat_map(|piece| pushes.filter(piece, drops)).collect()
    }

    #[test]
    fn pushes_are_removed_at_any_split_of_the_stream() {
        for first in 0..=STREAM.len() {
            for second in first..=STREAM.len() {
                let cut = [&STREAM[..first], &STREAM[first..second], &STREAM[second..]];
                assert_eq!(filtered(&cut, true), REPLIES, "cut at {first} and {second}");
                assert_eq!(filtered(&cut, false), STREAM);
            }
        }
    }

    #[test]
    fn held_bytes_continue_when_pushes_do() {
        let mut pushes = Pushes::default();
        assert_eq!(pushes.filter(b"+OK\r\n>2\r\n", true), b"+OK\r\n");
        assert_eq!(pushes.filter(b"$10\r\n", false), b">2\r\n$10\r\n");
    }
}
