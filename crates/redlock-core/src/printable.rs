//! Text from servers, files and arguments as it is printed: on one line, and without secrets.

use std::borrow::Cow;

/// The longest text of a server that is shown, in characters. Longer texts are cut.
const LEN_MAX: usize = 1_000;

/// Returns a server's text as a part of one line: without characters that change how the line looks,
/// and without the credentials of URLs.
pub fn line(text: &str) -> String {
    let cut = text.char_indices().nth(LEN_MAX).map(|(end, _)| &text[..end]);
    let shown = without_credentials(&visible(cut.unwrap_or(text))).into_owned();
    if cut.is_some() { shown + "..." } else { shown }
}

/// The same for a text with lines, which may be made of texts from others.
pub fn lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| is_invisible(c) && c != '\n') {
        return text.into();
    }
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n").into()
}

/// Escapes the characters that change how a line looks, such as ESC and line ends.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return text.into();
    }
    let one = |c: char| if is_invisible(c) { c.escape_default().to_string() } else { c.into() };
    text.chars().map(one).collect::<String>().into()
}

/// Returns `true` for control characters, and for characters without a width or with an effect on
/// the order or the lines of the text around them.
pub fn is_invisible(character: char) -> bool {
    let is_format = matches!(
        character,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    );
    character.is_control() || is_format
}

/// Hides the part between `://` and the last `@` of each word, which may be a password typed in the
/// wrong place.
pub fn without_credentials(text: &str) -> Cow<'_, str> {
    if !text.contains("://") {
        return text.into();
    }
    text.split_inclusive(char::is_whitespace).map(word).collect::<String>().into()
}

/// The forms that advice shows.
const FORMS: [&str; 2] = ["redis://[user:password@]host", "redis://user:none@host"];

/// An `@` may be encoded.
fn word(word: &str) -> String {
    let is_form = |(before, after): (&str, &str)| !before.contains("://") && !after.contains('@');
    if FORMS.iter().any(|form| word.split_once(form).is_some_and(is_form)) {
        return word.to_owned();
    }
    let end = [word.rfind('@'), word.rfind("%40")].into_iter().flatten().max();
    match (word.find("://"), end) {
        (Some(start), Some(end)) if start + 3 <= end => {
            format!("{}***{}", &word[..start + 3], &word[end..])
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_in_any_argument() {
        let text = "found 'redis://me:ses@me@h:1' and\nrediss://:x@h2, not a@b";
        let shown = without_credentials(text);
        assert_eq!(shown, "found 'redis://***@h:1' and\nrediss://***@h2, not a@b");
        assert_eq!(without_credentials("redis://me%3Ax%40h:1"), "redis://***%40h:1");
    }

    #[test]
    fn the_form_of_a_url_is_shown() {
        for advice in [
            "write redis://[user:password@]host[:port][/db], rediss://... for TLS",
            "write any password, such as redis://user:none@host",
        ] {
            assert_eq!(without_credentials(advice), advice);
        }
    }

    #[test]
    fn text_of_a_server_cannot_change_its_line() {
        let shown = line("ERR \u{1b}[31mred\nredlock: a\u{202e}b redis://u:sesame@h k\u{f6}ln");
        assert_eq!(shown, "ERR \\u{1b}[31mred\\nredlock: a\\u{202e}b redis://***@h k\u{f6}ln");
        assert_eq!(line(&"x".repeat(LEN_MAX + 1)).len(), LEN_MAX + 3);
    }
}
