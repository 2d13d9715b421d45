//! Short conversations with a server, each over a connection of its own.

use std::time::Duration;

use redis::{Client, IntoConnectionInfo, RedisResult, Value};

/// Who answers at `url`: the process id of a server that is done loading its data.
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
pub(super) fn command(url: &str, words: &[&str], patience: Duration) -> RedisResult<Value> {
    let info = url.into_connection_info()?;
    // Naming itself to a silent server would cost the client a patience of its own.
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

const PROBE_PATIENCE: Duration = Duration::from_secs(1);
