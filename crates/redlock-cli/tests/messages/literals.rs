//! The texts in a Rust source.

/// The string literals of two words or more, each on one line, up to the tests of the file.
pub(crate) fn messages(source: &str) -> Vec<String> {
    let source = source.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (before, from) = rest.split_at(at);
        rest = if from.starts_with("//") {
            from.split_once('\n').map_or("", |(_, next)| next)
        } else if let Some(inside) = from.strip_prefix('"') {
            let (text, next) = literal(inside);
            if is_message(&text) && !is_for_us(before) {
                found.push(text);
            }
            next
        } else if from.starts_with("'\"'") || from.starts_with("'\\\"'") {
            from.trim_start_matches(['\'', '\\', '"'])
        } else {
            &from[1..]
        };
    }
    found
}

/// Splits off a literal, and returns the rest. A line that ends with `\` continues with the first
/// word of the next line.
fn literal(from: &str) -> (String, &str) {
    let mut text = String::new();
    let mut chars = from.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (text, &from[at + 1..]),
            '\\' => match chars.next() {
                Some((_, '\n')) => while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                Some((_, 'n')) => text.push('⏎'),
                Some((_, escaped)) => text.push(escaped),
                None => break,
            },
            '\n' => text.push('⏎'),
            c => text.push(c),
        }
    }
    (text, "")
}

fn is_message(text: &str) -> bool {
    let words = text.split(' ').filter(|word| word.chars().any(char::is_alphabetic));
    // The long texts of help are shown as they are printed.
    words.count() >= 2 && text.matches('⏎').count() < 3
}

/// Reasons of lints and of panics are for programmers.
fn is_for_us(before: &str) -> bool {
    ["reason = ", ".expect(", "unreachable!(", "panic!(", "debug_assert!("]
        .iter()
        .any(|mark| before.trim_end().ends_with(mark.trim_end()))
}

#[test]
fn texts_are_found_on_one_line_and_comments_are_not() {
    let source =
        "// \"not this\"\nlet a = \"one, \\\n   two\"; // nor \"that one\"\nb('\"', \"x y\");";
    assert_eq!(messages(source), ["one, two", "x y"]);
    assert_eq!(messages("#[expect(x, reason = \"for us\")] \"for {you}\""), ["for {you}"]);
    assert_eq!(messages("\"one\" \"a/b c\"\n#[cfg(test)]\nmod tests { \"not this\" }"), ["a/b c"]);
}
