//! Text from servers, files and arguments as it is printed: on one line, and without secrets.

use std::borrow::Cow;

/// Texts of servers are cut after this many characters.
const LEN_MAX: usize = 1_000;

/// Returns a server's text as a part of one line: without characters that change how the line looks,
/// and without the credentials of URLs.
pub fn line(text: &str) -> String {
    let cut = text.char_indices().nth(LEN_MAX).map(|(end, _)| &text[..end]);
    let shown = without_credentials(&visible(cut.unwrap_or(text))).into_owned();
    if cut.is_some() { shown + "..." } else { shown }
}

/// Returns the text with all invisible characters escaped except line feeds. Parts of it may come
/// from others.
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

/// Returns the value of a setting or an argument as it is shown.
pub fn setting(text: &str) -> Cow<'_, str> {
    if may_be_secret(text) { "***".into() } else { visible(text) }
}

/// Returns `true` for a text that may contain a secret in the place of something else: a URL, a
/// user with a password, or the contents of a file.
pub fn may_be_secret(text: &str) -> bool {
    const SIGNS: [&str; 7] =
        ["://", "-----begin", "password=", "password:", "passwd", "pass=", "secret="];
    let is_log_in = text.find(':').zip(text.rfind('@')).is_some_and(|(colon, at)| colon < at);
    let lower = text.to_ascii_lowercase();
    is_log_in || SIGNS.iter().any(|sign| lower.contains(sign))
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
    let Some(start) = word.find("://").map(|at| at + 3) else { return word.to_owned() };
    match end {
        Some(end) if start <= end => format!("{}***{}", &word[..start], &word[end..]),
        _ if is_cut_off(&word[start..]) => format!("{}***", &word[..start]),
        _ => word.to_owned(),
    }
}

/// Returns `true` if a URL without an `@` may have a password: after a colon that no port follows,
/// or in its query.
fn is_cut_off(rest: &str) -> bool {
    let after = if rest.starts_with('[') { rest.split_once("]:") } else { rest.split_once(':') };
    let is_port = |text: &str| {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        (1..=5).contains(&digits) && !text[digits..].starts_with(char::is_alphanumeric)
    };
    after.is_some_and(|(_, port)| !port.is_empty() && !is_port(port)) || rest.contains("pass=")
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
    fn passwords_without_an_at_sign_are_hidden() {
        for text in ["'redis://:sesame'", "redis://me:sesame/0", "unix:///s?pass=sesame"] {
            assert!(!without_credentials(text).contains("sesame"), "{text}");
        }
        for text in
            ["'redis://h:6379'", "redis://[::1]:7001, or", "https://redis.io/docs,", "unix:///s"]
        {
            assert_eq!(without_credentials(text), text);
        }
    }

    #[test]
    fn settings_that_may_be_secrets_are_hidden() {
        for text in ["redis://:sesame", "me:sesame@h", "password=sesame", "-----BEGIN X"] {
            assert_eq!(setting(text), "***");
        }
        for text in ["locks:", "ann@web-1:4711", "me@example.org", "/etc/redlock/ca.pem"] {
            assert_eq!(setting(text), text);
        }
        assert_eq!(setting("a\n\u{1b}"), "a\\n\\u{1b}");
    }

    #[test]
    fn text_of_a_server_cannot_change_its_line() {
        let shown = line("ERR \u{1b}[31mred\nredlock: a\u{202e}b redis://u:sesame@h k\u{f6}ln");
        assert_eq!(shown, "ERR \\u{1b}[31mred\\nredlock: a\\u{202e}b redis://***@h k\u{f6}ln");
        assert_eq!(line(&"x".repeat(LEN_MAX + 1)).len(), LEN_MAX + 3);
    }
}
