//! `ServerError`: what an error reply of a server means, decided in one place.

use crate::printable;

/// The meaning of an error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServerError {
    /// The server requires a password, and got none: `NOAUTH`.
    NoLogIn,
    /// The user or the password is wrong: `WRONGPASS`.
    WrongLogIn,
    /// The default user got a password, and has none.
    NoPasswordSet,
    /// The user lacks the right to a command, a key or a channel: `NOPERM`.
    Denied,
    /// The server does not have the command: it is too old, or its configuration renames it.
    UnknownCommand,
    /// The server allows scripts only keys that the call declares.
    UndeclaredKey,
    /// The server accepts only clients on the same host: `DENIED`.
    Protected,
    /// The server does not have the database.
    NoDatabase,
    /// The server is a node of a cluster.
    Cluster,
    /// The key is of another type, or has a value that no client of this library writes.
    WrongType,
    /// The server is no longer a master: `READONLY`, `MASTERDOWN`.
    Demoted,
    /// The server does not have the script.
    NoScript,
    /// The server has as many connections as it allows.
    TooManyClients,
    /// The server reads its data.
    Loading,
    /// The server runs a script, and answers nothing else until it ends.
    Busy,
    /// The server refuses to write for now, for example because its memory is full.
    Refusing,
    /// The server does not know a word of the command: it is too old for it.
    UnknownWord,
    /// There is no such connection.
    NoClient,
    /// None of these.
    Other,
}

impl ServerError {
    /// Returns the meaning of an error's text, which begins with its code.
    pub fn of(text: &str) -> Self {
        let known = KNOWN.iter().find(|(words, _)| begins(text, words));
        known.map_or_else(|| Self::in_script(text), |(_, meaning)| *meaning)
    }

    /// Servers before 7.0 report the error of a command in a script inside an error of the script.
    fn in_script(text: &str) -> Self {
        let says = |words: &str| text.contains(words);
        if ["Unknown Redis command called from", "Unknown command called from"]
            .into_iter()
            .any(says)
        {
            return Self::UnknownCommand;
        }
        if ["The user executing the script can't", "ACL failure in script"].into_iter().any(says) {
            return Self::Denied;
        }
        if UNDECLARED.into_iter().any(says) {
            return Self::UndeclaredKey;
        }
        let is_wrapped = text.starts_with("ERR Error running script") || text.starts_with('@');
        let is_inside = |words: &str| is_wrapped && says(&format!("-{words} "));
        let known = KNOWN.iter().find(|(words, _)| is_inside(words));
        known.map_or(Self::Other, |(_, meaning)| *meaning)
    }

    /// Returns `true` if the error will recur until an operator changes something. An unknown error
    /// is treated as temporary, so the lock is tried again.
    pub fn lasts(self) -> bool {
        match self {
            Self::NoLogIn
            | Self::WrongLogIn
            | Self::NoPasswordSet
            | Self::Denied
            | Self::UnknownCommand
            | Self::UndeclaredKey
            | Self::Protected
            | Self::NoDatabase
            | Self::Cluster
            | Self::WrongType => true,
            Self::Demoted
            | Self::NoScript
            | Self::TooManyClients
            | Self::Loading
            | Self::Busy
            | Self::Refusing
            | Self::UnknownWord
            | Self::NoClient
            | Self::Other => false,
        }
    }

    /// Returns `true` if the server sends the error for any command, so that it shows nothing about
    /// the rights of the user or about the command.
    pub fn is_of_every_command(self) -> bool {
        let is_of_log_in = matches!(self, Self::NoLogIn | Self::WrongLogIn | Self::NoPasswordSet);
        let is_of_url = matches!(self, Self::Protected | Self::NoDatabase | Self::Cluster);
        let passes = matches!(self, Self::TooManyClients | Self::Loading | Self::Busy);
        is_of_log_in || is_of_url || passes
    }

    /// Returns `true` if the error is known to go away by itself. An unknown error is treated as
    /// lasting, so the tested feature is not used.
    pub fn passes(self) -> bool {
        matches!(
            self,
            Self::Demoted | Self::TooManyClients | Self::Loading | Self::Busy | Self::Refusing
        )
    }
}

/// Returns an error reply as one line of text, with its code, and without arguments and secrets.
pub fn message(code: &str, details: Option<&str>) -> String {
    printable::line(&match details.map(without_arguments) {
        Some(details) => format!("{code} {details}"),
        None => code.to_owned(),
    })
}

/// Returns an error's text without the arguments that servers quote, which may be a script, and
/// without the digest of the script that called a command.
pub fn without_arguments(text: &str) -> &str {
    let quotes = text.split_once(", with args beginning with:");
    without_place(quotes.map_or(text, |(what, _)| what))
}

/// Returns an error's text without the place in a script that newer servers append.
fn without_place(text: &str) -> &str {
    match text.rsplit_once(" script: ") {
        Some((what, place)) if place.contains("on @user_script") => what,
        _ => text,
    }
}

/// Returns `true` if a text begins with these words, as a whole.
fn begins(text: &str, words: &str) -> bool {
    text.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ',']))
}

/// The errors about a key that the call of a script does not declare: Dragonfly, clusters,
/// and hosted services.
const UNDECLARED: [&str; 4] = [
    "undeclared key",
    "access a non local key",
    "access keys that do not hash to the same slot",
    "bad lua script for redis cluster",
];

/// How errors begin.
const KNOWN: [(&str, ServerError); 28] = [
    ("WRONGPASS", ServerError::WrongLogIn),
    ("NOAUTH", ServerError::NoLogIn),
    ("ERR AUTH", ServerError::NoPasswordSet),
    ("ERR Client sent AUTH", ServerError::NoPasswordSet),
    ("ERR invalid password", ServerError::WrongLogIn),
    ("NOPERM", ServerError::Denied),
    ("ERR unknown command", ServerError::UnknownCommand),
    ("DENIED", ServerError::Protected),
    ("MOVED", ServerError::Cluster),
    ("ASK", ServerError::Cluster),
    ("ERR SELECT is not allowed in cluster mode", ServerError::Cluster),
    ("ERR invalid DB index", ServerError::NoDatabase),
    ("ERR DB index", ServerError::NoDatabase),
    ("WRONGTYPE", ServerError::WrongType),
    ("ERR the mark is malformed", ServerError::WrongType),
    // The answer of Redis 8.4 to `DELEX key IFEQ value`.
    ("ERR Key should be of string type", ServerError::WrongType),
    ("READONLY", ServerError::Demoted),
    ("MASTERDOWN", ServerError::Demoted),
    ("NOSCRIPT", ServerError::NoScript),
    ("ERR max number of clients", ServerError::TooManyClients),
    ("LOADING", ServerError::Loading),
    ("BUSY", ServerError::Busy),
    ("OOM", ServerError::Refusing),
    ("MISCONF", ServerError::Refusing),
    ("NOREPLICAS", ServerError::Refusing),
    // Before 6.2, ZADD takes a word that it does not know for a score.
    ("ERR syntax error", ServerError::UnknownWord),
    ("ERR value is not a valid float", ServerError::UnknownWord),
    ("ERR No such client", ServerError::NoClient),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_inside_the_error_of_a_script_means_the_same() {
        for (text, meaning) in [
            ("OOM command not allowed", ServerError::Refusing),
            (
                "ERR Error running script (call to f_1): @user_script:5: @user_script: 5: -OOM \
                 command not allowed",
                ServerError::Refusing,
            ),
            ("ERR Error running script (call to f_1): @f:5: -READONLY You", ServerError::Demoted),
            (
                "ERR Unknown Redis command called from script script: f_1, on @user_script:1.",
                ServerError::UnknownCommand,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: Unknown \
                 Redis command called from Lua script",
                ServerError::UnknownCommand,
            ),
            (
                "ERR The user executing the script can't run this command or subcommand",
                ServerError::Denied,
            ),
            (
                "ERR Error running script (call to f_1): script tried accessing undeclared key",
                ServerError::UndeclaredKey,
            ),
            (
                "ERR Script attempted to access a non local key in a cluster node script: f_1",
                ServerError::UndeclaredKey,
            ),
            ("NOPERM the user may not use '-READONLY '", ServerError::Denied),
            ("ERR READONLY is not what this is about", ServerError::Other),
        ] {
            assert_eq!(ServerError::of(text), meaning, "{text}");
        }
    }

    #[test]
    fn unknown_error_is_temporary_for_a_lock_and_lasts_for_a_probe() {
        let unknown = ServerError::of("ERR something new");
        assert!(!unknown.lasts() && !unknown.passes());
    }

    #[test]
    fn quoted_and_named_scripts_are_cut_off() {
        let quoted = "ERR unknown command 'EVAL', with args beginning with: 'local value = 1' '1' ";
        assert_eq!(without_arguments(quoted), "ERR unknown command 'EVAL'");
        assert_eq!(without_arguments("OOM full"), "OOM full");
        let called = "ERR The user executing the script can't run this command or subcommand \
                      script: fda144ca, on @user_script:11.";
        assert!(without_arguments(called).ends_with("or subcommand"), "{called}");
    }

    #[test]
    fn only_the_place_in_a_script_is_cut_off() {
        // Redis 7.0, Redis 7.2 and Valkey 8, Valkey 9.
        for (error, place) in [
            ("ERR The user executing the script can't run it", "script: 65, on @user_script:5."),
            ("ERR ACL failure in script: User a has no 'del'", "script: 65, on @user_script:5."),
            ("ERR ACL failure in script: User a has no 'del'", "script: on @user_script:5."),
        ] {
            assert_eq!(without_place(&format!("{error} {place}")), error);
            assert_eq!(ServerError::of(error), ServerError::Denied);
            assert_eq!(without_place(error), error);
        }
    }
}
