//! Short conversations with a server, each on its own connection.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Client, IntoConnectionInfo, RedisError, RedisResult, Value};

/// Returns the process id of the server that answers at `url`, once it has loaded its data.
pub(super) fn process_id(url: &str) -> Option<u32> {
    let info: String =
        redis::from_redis_value(command(url, &["INFO"], PROBE_PATIENCE).ok()?).ok()?;
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
    if field("loading:")?.trim() != "0" {
        return None;
    }
    field("process_id:")?.trim().parse().ok()
}

/// Sends one command and returns its reply; `patience` is for each of connecting and answering.
///
/// A process that was stopped and continued finds its read interrupted if that has a time limit.
/// Then the command is sent again, but not after `patience`.
pub(super) fn command(url: &str, words: &[&str], patience: Duration) -> RedisResult<Value> {
    let began = Instant::now();
    loop {
        match send(url, words, patience) {
            Err(error) if is_interrupted(&error) && began.elapsed() < patience => {}
            outcome => return outcome,
        }
    }
}

fn send(url: &str, words: &[&str], patience: Duration) -> RedisResult<Value> {
    let info = url.into_connection_info()?;
    // If the server is silent, setting the client's name would wait for an extra timeout.
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    let client = Client::open(info.set_redis_settings(settings))?;
    let mut connection = client.get_connection_with_timeout(patience)?;
    connection.set_read_timeout(Some(patience))?;
    connection.set_write_timeout(Some(patience))?;
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.query(&mut connection)
}

fn is_interrupted(error: &RedisError) -> bool {
    let cause =
        error.source().and_then(|cause| cause.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let cause = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::Interrupted)
}

const PROBE_PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruption_differs_from_a_timeout() {
        let is_one = |kind: io::ErrorKind| is_interrupted(&io::Error::from(kind).into());
        assert!(is_one(io::ErrorKind::Interrupted) && !is_one(io::ErrorKind::TimedOut));
    }
}
