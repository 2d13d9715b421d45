//! Shared queues: the scripts on them, how they are called, and what a server must allow. See rule
//! W5 of `docs/PROTOCOL.md`.

use redis::{Cmd, Value, cmd};

use super::namespace::Namespace;
use super::resp;
use crate::printable;
use crate::server_error::ServerError;
use crate::{Answer, Cause, Entry, Exit, Op, SharedQueue, Verb, Verdict};

/// ENTER and LEAVE both start with the code they share.
pub(super) const ENTER: &str =
    concat!(include_str!("scripts/queue.lua"), include_str!("scripts/enter.lua"));
pub(super) const LEAVE: &str = concat!(
    include_str!("scripts/leave_alone.lua"),
    include_str!("scripts/queue.lua"),
    include_str!("scripts/leave.lua")
);
pub(super) const TAKE: &str = include_str!("scripts/take.lua");
pub(super) const RESERVE: &str = include_str!("scripts/reserve.lua");
const RIGHTS: &str = include_str!("scripts/rights.lua");
const RELEASE_RIGHTS: &str = include_str!("scripts/release_rights.lua");

/// Passes the keys and arguments of the request's script to `call`, one after the other.
pub(super) fn arguments<T>(op: &Op, call: impl FnOnce(&[&[u8]]) -> T) -> T {
    let mut buffers = [itoa::Buffer::new(); 4];
    match (op.verb(), op.entry(), op.exit()) {
        (Verb::Enter { px }, Some(entry), _) => enter(op, entry, px, &mut buffers, call),
        (Verb::Leave { .. }, _, Some(exit)) => leave(op, exit, &mut buffers[0], call),
        (Verb::Take { px } | Verb::Reserve { px }, ..) => {
            call(&[op.key(), op.token(), buffers[0].format(px).as_bytes()])
        }
        // Only the two before have more than a key.
        _ => call(&[op.key()]),
    }
}

fn enter<T>(
    op: &Op,
    entry: &Entry,
    px: u64,
    [a, b, c, d]: &mut [itoa::Buffer; 4],
    call: impl FnOnce(&[&[u8]]) -> T,
) -> T {
    let Entry { queue, waited_us, reservation_ms, .. } = entry;
    let ticket = queue.ticket().digits();
    let [px, waited, reservation, room] = [
        a.format(px).as_bytes(),
        b.format(*waited_us).as_bytes(),
        c.format(*reservation_ms).as_bytes(),
        d.format(SharedQueue::LEN_MAX).as_bytes(),
    ];
    let mut digits = itoa::Buffer::new();
    let expiry = digits.format(SharedQueue::EXPIRY_MS).as_bytes();
    call(&[
        op.key(),
        queue.key(),
        &ticket,
        op.token(),
        px,
        waited,
        expiry,
        reservation,
        queue.channels(),
        room,
    ])
}

fn leave<T>(
    op: &Op,
    exit: &Exit,
    digits: &mut itoa::Buffer,
    call: impl FnOnce(&[&[u8]]) -> T,
) -> T {
    let Exit { queue, gives_up_place, reservation_ms, leaving, .. } = exit;
    let ticket = queue.ticket().digits();
    call(&[
        op.key(),
        queue.key(),
        op.token(),
        if *gives_up_place { &ticket } else { b"" },
        digits.format(*reservation_ms).as_bytes(),
        queue.channels(),
        leaving.word().as_bytes(),
    ])
}

/// Builds a script that tests whether the server knows and allows the commands that queues need. It
/// changes nothing, because its channel and queue belong to no ticket and no lock.
pub(super) fn probe(namespace: &Namespace) -> Cmd {
    let [queue, channel] = [SharedQueue::PREFIX, SharedQueue::CHANNEL]
        .map(|name| [&namespace.prefix[..], name.as_bytes()].concat());
    cmd("EVAL").arg(RIGHTS).arg(1).arg(queue).arg(channel).clone()
}

/// Returns why a server takes no queues, from its reply to the [probe](probe). Temporary errors,
/// such as a full memory, are ignored.
pub(super) fn why_not(reply: &Value) -> Option<String> {
    let Some(failed) = failed(reply) else { return Some(STRANGE.into()) };
    let lasting = failed.into_iter().filter(|it| !ServerError::of(&it.error).passes());
    let mut lasting = lasting.peekable();
    let Failed { command, error } = lasting.peek()?.clone();
    let others: Vec<_> = lasting.skip(1).map(|it| it.command).collect();
    Some(format!("{command} was rejected: {error}{}", and_others(&others)))
}

/// A command of a probe that failed.
#[derive(Clone, Debug)]
struct Failed {
    command: String,
    error: String,
}

/// Returns the failed commands. `None` if the reply does not answer a probe.
fn failed(reply: &Value) -> Option<Vec<Failed>> {
    match reply {
        Value::Int(_) => Some(Vec::new()),
        Value::ServerError(error) => {
            Some(vec![Failed { command: "EVAL".into(), error: resp::message(error) }])
        }
        Value::Array(parts) => parts.chunks(2).map(Failed::of).collect(),
        _ => None,
    }
}

impl Failed {
    fn of(pair: &[Value]) -> Option<Self> {
        let [Value::BulkString(command), Value::BulkString(error)] = pair else { return None };
        let [command, error] =
            [command, error].map(|it| printable::line(&String::from_utf8_lossy(it)));
        Some(Self { command, error })
    }

    /// Returns `true` if a release needs the command, and the server lacks or denies it.
    fn hinders_release(&self) -> bool {
        RELEASES_WITH.contains(&&*self.command) && lacks_command(&self.error)
    }
}

/// The commands that a release needs. Its own command of some servers is used where it is allowed.
const RELEASES_WITH: [&str; 3] = ["EVAL", "GET", "DEL"];

/// Returns `true` if the server lacks or denies a command. Errors about key access do not matter,
/// because the key of a probe is not a lock.
fn lacks_command(error: &str) -> bool {
    let kind = ServerError::of(error);
    matches!(kind, ServerError::Denied | ServerError::UnknownCommand) && !error.contains("access")
}

/// Lists the further commands, so that one fix is enough.
fn and_others(commands: &[String]) -> String {
    match commands {
        [] => String::new(),
        _ => format!("; {} also failed", commands.join(" ")),
    }
}

const STRANGE: &str = "its answer is not one of a Redis server";

/// Returns the server's error text if the user is no longer allowed to use the queue scripts.
pub(super) fn denial(op: &Op, answer: &Answer) -> Option<String> {
    let is_on_queue = matches!(op.verb(), Verb::Enter { .. } | Verb::Leave { .. });
    match &answer.verdict {
        // If the key was set, the error is about the ballot.
        Verdict::Unknown(Cause::ErrorReply(text)) if is_on_queue && !answer.key_set => {
            (ServerError::of(text) == ServerError::Denied).then(|| text.clone())
        }
        _ => None,
    }
}

/// Builds a script that tests whether a lock can be released, for clients that use no queue.
pub(super) fn release_probe(namespace: &Namespace) -> Cmd {
    let key = [&namespace.prefix[..], SharedQueue::PREFIX.as_bytes()].concat();
    cmd("EVAL").arg(RELEASE_RIGHTS).arg(1).arg(key).clone()
}

/// Returns why a server cannot release a lock, from its reply to either probe.
pub(super) fn no_release(reply: &Value) -> Option<String> {
    let failed = failed(reply)?;
    let Failed { command, error } = failed.iter().find(|it| it.hinders_release())?;
    let others = failed.iter().map(|it| &it.command).filter(|other| *other != command);
    let others = and_others(&others.cloned().collect::<Vec<_>>());
    Some(without(command, error) + &others)
}

/// Returns why locks can no longer be released, if the answer to this request shows it.
pub(super) fn lost_release(op: &Op, answer: &Answer) -> Option<String> {
    let Verdict::Unknown(Cause::ErrorReply(error)) = &answer.verdict else { return None };
    let releases = matches!(op.verb(), Verb::Release | Verb::Leave { .. } | Verb::Reserve { .. });
    let lower = error.to_ascii_lowercase();
    let named = RELEASES_WITH
        .iter()
        .find(|command| lower.contains(&format!("'{}'", command.to_ascii_lowercase())));
    match named {
        _ if !lacks_command(error) => None,
        Some(command) => Some(without(command, error)),
        None if releases => {
            Some(format!("{error}: no lock can be released, so no lock is acquired"))
        }
        None => None,
    }
}

fn without(command: &str, error: &str) -> String {
    format!("{error}: without {command} no lock can be released, so no lock is acquired")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_error::without_arguments;
    use crate::{QueueTicket, Reservation, Resource};

    #[test]
    fn scripts_and_types_use_one_reservation_name() {
        for script in [ENTER, LEAVE, TAKE, RESERVE] {
            assert!(script.contains(&format!("'{}'", Reservation::PREFIX)), "{script}");
        }
        assert!(ENTER.contains(&format!("for _ = 1, {} do", SharedQueue::DROPS_MAX)));
    }

    #[test]
    fn ticket_is_sent_only_to_give_up_the_place() {
        let queue = SharedQueue::new(b"p:", &Resource::from("job"), QueueTicket::new(1));
        let exit = |gives_up_place| Exit {
            queue: queue.clone(),
            token: None,
            gives_up_place,
            reservation_ms: 50,
            leaving: crate::Leaving::Undo,
        };
        let ticket = |op: &Op| arguments(op, |parts| parts[3].to_vec());
        assert_eq!(ticket(&Op::leave(*b"p:job", exit(true))), b"0000000000000001");
        assert_eq!(ticket(&Op::leave(*b"p:job", exit(false))), b"");
    }

    #[test]
    fn only_permanent_errors_disable_queues() {
        let why = |reply: &[u8]| why_not(&resp::parse(reply).unwrap());
        assert_eq!(why(b":1\r\n"), None);
        assert_eq!(why(b"-LOADING it loads\r\n"), None);
        assert_eq!(why(b"*2\r\n$4\r\nZADD\r\n$8\r\nOOM full\r\n"), None);
        let denied = why(b"*2\r\n$7\r\nPUBLISH\r\n$9\r\nNOPERM no\r\n");
        assert_eq!(denied.as_deref(), Some("PUBLISH was rejected: NOPERM no"));
        let denied = why(b"-NOPERM no\r\n");
        assert_eq!(denied.as_deref(), Some("EVAL was rejected: NOPERM no"));
        let three = b"*6\r\n$4\r\nZADD\r\n$8\r\nOOM full\r\n$4\r\nTIME\r\n$9\r\nNOPERM no\r\n\
                      $5\r\nZRANK\r\n$9\r\nNOPERM no\r\n";
        assert_eq!(
            why(three).as_deref(),
            Some("TIME was rejected: NOPERM no; ZRANK also failed"),
            "all commands that last are named"
        );
    }

    #[test]
    fn missing_release_right_is_found_in_any_answer() {
        let why = |op: &Op, error: &str| {
            let error = without_arguments(error).into();
            lost_release(op, &Answer::unknown(Cause::of_error_reply(error)))
        };
        let (watch, release) = (Op::watch(*b"k"), Op::release(*b"k", crate::Token::random(None)));
        for (command, name) in [("eval", "EVAL"), ("get", "GET")] {
            let error =
                format!("NOPERM this user has no permissions to run the '{command}' command");
            assert!(why(&watch, &error).unwrap().contains(&format!("without {name} no lock")));
        }
        let in_script = "ERR The user executing the script can't run this command or subcommand";
        assert!(why(&release, in_script).is_some());
        let newer = "ERR ACL failure in script: User default has no permissions to run the 'del' \
                     command script: 6562975f, on @user_script:5.";
        let said = why(&release, newer).unwrap();
        assert!(
            said.ends_with(
                "'del' command: without DEL no lock can be released, so no lock is acquired"
            ),
            "{said}"
        );
        for other in
            [in_script, "NOPERM no 'zadd'", "OOM full", "NOPERM No permissions to access a key"]
        {
            assert_eq!(why(&watch, other), None, "{other}");
        }
    }

    #[test]
    fn only_a_missing_release_command_prevents_acquiring() {
        let why = |reply: &[u8]| no_release(&resp::parse(reply).unwrap());
        let unknown = b"-ERR unknown command 'EVAL', with args beginning with: 'local value' \r\n";
        let said = why(unknown).unwrap();
        assert!(said.starts_with("ERR unknown command 'EVAL': without EVAL"), "{said}");
        let denied = b"-NOPERM User few has no permissions to run the 'eval' command\r\n";
        assert!(why(denied).is_some());
        let no_del =
            b"*2\r\n$3\r\nDEL\r\n$49\r\nERR Unknown Redis command called from script: f_1\r\n";
        assert!(why(no_del).unwrap().contains("without DEL"));
        for other in [
            &b":1\r\n"[..],
            b"-OOM full\r\n",
            b"-ERR something new\r\n",
            b"-NOPERM No permissions to access a key\r\n",
            b"*2\r\n$4\r\nZADD\r\n$9\r\nNOPERM no\r\n",
        ] {
            assert_eq!(why(other), None, "{}", other.escape_ascii());
        }
    }
}
