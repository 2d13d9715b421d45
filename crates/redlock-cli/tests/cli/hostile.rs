//! Servers whose texts would change how a terminal looks, or contain secrets.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::support::{answer_of, bare};
use crate::unsuitable::command;

/// Starts a fake server that answers every command with this line, and returns its URL.
pub(crate) fn fake(line: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || answer_all(&client, line));
        }
    });
    url
}

fn answer_all(mut client: &TcpStream, line: &str) {
    let mut requests = BufReader::new(client.try_clone().unwrap());
    while command(&mut requests).is_some() {
        if write!(client, "{line}\r\n").is_err() {
            return;
        }
    }
}

#[test]
fn text_of_a_server_cannot_change_the_output() {
    let url = fake("-NOPERM \x1b[31m\nredlock: all is well \u{202e} redis://me:sesame@h");
    for words in [&["doctor"][..], &["-v", "acquire", "k"], &["-v", "status", "k"]] {
        let answer = answer_of(bare([]).env("REDLOCK_NODES", &url).args(words));
        let shown = format!("{}{}", answer.out, answer.err);
        assert!(shown.contains("NOPERM \\u{1b}[31m\\nredlock"), "{words:?}: {shown}");
    }
    for words in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["-v", "acquire", "k"],
        &["-v", "status", "k"],
        &["status", "k", "--json"],
        &["status"],
        &["acl", "--check"],
        &["init", "--yes"],
        &["release", "--force", "k", "--yes"],
    ] {
        let answer = answer_of(bare([]).env("REDLOCK_NODES", &url).args(words));
        let said = format!("{}{}", answer.out, answer.err);
        assert!(!said.contains(['\x1b', '\u{202e}']) && !said.contains("sesame"), "{said:?}");
        assert!(!said.contains("\nredlock: all is well"), "{said}");
    }
}
