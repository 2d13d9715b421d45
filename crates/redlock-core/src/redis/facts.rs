//! The facts that a server reports about itself: `INFO`, and the record of the prefix.

use std::str::FromStr;
use std::time::Duration;

use redis::{Cmd, Value, cmd};

use super::resp;
use super::stream::unusable;
use crate::admission::{Identity, MAX_TTL_MAX, Quarantine, Record, RecordedSet, RunId};
use crate::numbers::number;
use crate::server_error::ServerError;
use crate::{Cause, Facts, Role, Ttl, Unread};

/// Builds the request for a section of `INFO`.
pub(super) fn info(section: &str) -> Cmd {
    cmd("INFO").arg(section).clone()
}

/// Parses the facts in `INFO server`, `INFO replication` and, if it was read, the record.
pub(super) fn facts(
    server: &Value,
    replication: &Value,
    record: Option<&Value>,
) -> Result<Facts, Cause> {
    let (server, replication) = (text(server)?, text(replication)?);
    let Some(run_id) = field(&server, "run_id") else {
        return Err(unusable("INFO has no run_id"));
    };
    // Valkey uses a different name for the field.
    let modes = ["redis_mode", "server_mode"].map(|name| field(&server, name));
    if modes.contains(&Some("sentinel")) {
        return Err(unusable(Facts::SENTINEL));
    }
    Ok(Facts {
        identity: identity(run_id, &replication),
        time_us: time_us(&server),
        uptime: field(&server, "uptime_in_seconds").and_then(seconds),
        record: record.map_or(Err(Unread::NotAsked), self::record),
        role: role_in(&replication),
        is_cluster: modes.contains(&Some("cluster")),
        ..Facts::master(run_id)
    })
}

/// Parses the process in `INFO server`, and its TIME in microseconds.
pub(super) fn clock(server: &Value) -> Result<(RunId, u64), Cause> {
    let server = text(server)?;
    let process = field(&server, "run_id").and_then(|run_id| run_id.parse().ok());
    let nothing = || unusable("INFO has no run_id or no time");
    process.zip(time_us(&server)).ok_or_else(nothing)
}

/// Parses the role in `INFO replication`.
pub(super) fn role(replication: &Value) -> Result<Role, Cause> {
    text(replication).map(|replication| role_in(&replication))
}

/// Returns the process, and the history of its data if `INFO replication` shows that it was a
/// replica.
fn identity(run_id: &str, replication: &str) -> Option<Identity> {
    let run = run_id.parse().ok()?;
    let replid = match field(replication, "second_repl_offset") {
        None | Some("-1") => None,
        Some(_) => Some(field(replication, "master_replid")?.parse().ok()?),
    };
    Some(Identity { run, replid })
}

fn role_in(replication: &str) -> Role {
    match field(replication, "role") {
        Some("master") => Role::Master,
        Some("slave") => Role::Replica,
        _ => Role::Other,
    }
}

fn seconds(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_secs)
}

fn time_us(server: &str) -> Option<u64> {
    field(server, "server_time_usec")?.parse().ok()
}

fn text(reply: &Value) -> Result<String, Cause> {
    match reply {
        Value::ServerError(error) => Err(resp::refusal(error)),
        Value::BulkString(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Value::VerbatimString { text, .. } => Ok(text.clone()),
        _ => Err(unusable("not a Redis server: INFO is not text")),
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Parses the record in the reply to `HGETALL`.
pub(super) fn record(reply: &Value) -> Result<Box<Record>, Unread> {
    match reply {
        Value::ServerError(error) => Err(match resp::kind(error) {
            ServerError::Loading => Unread::Loading,
            ServerError::WrongType => Unread::WrongType,
            _ => Unread::Refused(resp::refusal(error)),
        }),
        Value::Map(fields) => read(fields.iter().map(|(name, value)| (name, value))),
        Value::Array(flat) => {
            let pairs = flat.chunks_exact(2).map(|pair| (&pair[0], &pair[1]));
            read(pairs)
        }
        _ => Err(Unread::Refused(unusable("HGETALL returned no fields"))),
    }
}

fn read<'a>(pairs: impl Iterator<Item = (&'a Value, &'a Value)>) -> Result<Box<Record>, Unread> {
    let texts = pairs.map(|(name, value)| {
        let name = bytes(name).map(|name| String::from_utf8_lossy(name).into_owned());
        (name.unwrap_or_default(), bytes(value).and_then(|value| str::from_utf8(value).ok()))
    });
    let fields = Fields(texts.collect());
    Ok(Box::new(Record {
        max_ttl: fields.max_ttl()?,
        run: fields.parsed("run")?,
        floor: fields.number("floor")?,
        nonce: fields.parsed("q:nonce")?,
        quarantine: fields.quarantine()?,
        set: fields.set()?,
    }))
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

/// The fields of a record, each with its value where that is text. Others than ours are left alone.
struct Fields<'a>(Vec<(String, Option<&'a str>)>);

impl Fields<'_> {
    fn get(&self, name: &str) -> Result<Option<&str>, Unread> {
        match self.0.iter().find(|(found, _)| found == name) {
            None => Ok(None),
            Some((_, value)) => value.map(Some).ok_or_else(|| malformed(name)),
        }
    }

    fn parsed<T: FromStr>(&self, name: &str) -> Result<Option<T>, Unread> {
        let parse = |text: &str| text.parse().map_err(|_| malformed(name));
        self.get(name)?.map(parse).transpose()
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Unread> {
        let parse = |text| number(text).ok_or_else(|| malformed(name));
        self.get(name)?.map(parse).transpose()
    }

    /// Parses `max_ttl`. A value that no client can have written would end a quarantine
    /// immediately, or never.
    fn max_ttl(&self) -> Result<Option<u64>, Unread> {
        let range = Ttl::MIN..=MAX_TTL_MAX;
        match self.number("max_ttl")? {
            Some(found) if !range.contains(&Duration::from_millis(found)) => {
                Err(malformed("max_ttl"))
            }
            found => Ok(found),
        }
    }

    /// Names that are not text are none.
    fn set(&self) -> Result<Option<RecordedSet>, Unread> {
        let names = self.get("names").ok().flatten();
        let read = |set| RecordedSet::read(set, names).map_err(|_| malformed("set"));
        self.get("set")?.map(read).transpose()
    }

    /// Parses the quarantine, whose fields are present or absent together.
    fn quarantine(&self) -> Result<Option<Quarantine>, Unread> {
        let Some(id) = self.parsed("q:id")? else { return Ok(None) };
        let number = |name| self.number(name)?.ok_or_else(|| malformed(name));
        let (until, ballot) = (number("q:until")?, number("q:ballot")?);
        Ok(Some(Quarantine { id, until, ballot, notes: self.notes()? }))
    }

    fn notes(&self) -> Result<Vec<(RunId, u64)>, Unread> {
        let noted = self.0.iter().filter_map(|(name, _)| Some((name, name.strip_prefix(NOTE)?)));
        let notes = noted.map(|(name, process)| {
            let process = process.parse().map_err(|_| malformed(name))?;
            Ok((process, self.number(name)?.ok_or_else(|| malformed(name))?))
        });
        let mut notes = notes.collect::<Result<Vec<_>, Unread>>()?;
        notes.sort_unstable();
        Ok(notes)
    }
}

/// How the names of the fields with notes begin.
const NOTE: &str = "q:note:";

fn malformed(name: &str) -> Unread {
    Unread::Malformed(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Names, SCORE_END, SetId};

    const RUN: &str = "0123456789abcdef0123456789abcdef01234567";
    const REPLID: &str = "fedcba9876543210fedcba9876543210fedcba98";

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn seen(server: &str, replication: &str) -> Facts {
        facts(&bulk(server), &bulk(replication), None).unwrap()
    }

    const SERVER: &str = "# Server\r\nredis_mode:standalone\r\nrun_id:abc\r\n";
    const MASTER: &str = "# Replication\r\nrole:master\r\n";

    #[test]
    fn a_standalone_master_is_one_with_its_identity() {
        assert_eq!(seen(SERVER, MASTER), Facts::master("abc"));
    }

    #[test]
    fn replicas_and_cluster_nodes_are_recognized() {
        let replica = seen(SERVER, "role:slave\r\nmaster_host:m\r\n");
        assert_eq!((replica.role, replica.is_cluster), (Role::Replica, false));
        for mode in ["redis_mode", "server_mode"] {
            let cluster = seen(&format!("{mode}:cluster\r\nrun_id:abc\r\n"), MASTER);
            assert_eq!((cluster.role, cluster.is_cluster), (Role::Master, true));
        }
    }

    #[test]
    fn sentinel_is_unusable() {
        for mode in ["redis_mode", "server_mode"] {
            let sentinel = bulk(&format!("{mode}:sentinel\r\nrun_id:abc\r\n"));
            let cause = facts(&sentinel, &bulk(""), None).unwrap_err();
            assert!(
                cause.to_string().contains("it is a Sentinel") && !cause.is_curable(),
                "{cause}"
            );
        }
        assert_eq!(seen(SERVER, "").role, Role::Other);
    }

    #[test]
    fn server_without_run_id_or_role_is_unusable() {
        let nameless = facts(&bulk(""), &bulk(MASTER), None).unwrap_err();
        assert!(nameless.to_string().contains("run_id"), "{nameless}");
        let denied = redis::parse_redis_value(b"-NOPERM no INFO for you\r\n").unwrap();
        let error = Err(Cause::ErrorReply("NOPERM no INFO for you".into()));
        assert_eq!(facts(&denied, &bulk(MASTER), None), error);
        assert_eq!(facts(&bulk(SERVER), &denied, None), error);
    }

    #[test]
    fn replid_is_part_of_the_identity_only_after_a_failover() {
        let server = format!("run_id:{RUN}\r\nserver_time_usec:1700000000000001\r\n");
        let of = |offset: &str| {
            let replication = format!("{MASTER}master_replid:{REPLID}\r\n{offset}");
            seen(&server, &replication).identity.unwrap().to_string()
        };
        assert_eq!(of("second_repl_offset:-1\r\n"), RUN);
        assert_eq!(of(""), RUN, "an old server");
        assert_eq!(of("second_repl_offset:1\r\n"), format!("{RUN}:{REPLID}"));
        assert_eq!(seen(&server, MASTER).time_us, Some(1_700_000_000_000_001));
        let told = clock(&bulk(&server)).map(|(process, time)| (process.to_string(), time));
        assert_eq!(told, Ok((RUN.to_owned(), 1_700_000_000_000_001)));
    }

    fn hash(fields: &[(&str, &str)]) -> Value {
        Value::Map(fields.iter().map(|(name, value)| (bulk(name), bulk(value))).collect())
    }

    #[test]
    fn record_is_read_with_all_fields_in_either_protocol() {
        let note = format!("q:note:{RUN}");
        let former = format!("{RUN}:{REPLID}");
        let fields = [
            ("max_ttl", "60000"),
            ("floor", "31"),
            ("q:nonce", "00000000000000ff"),
            ("q:id", former.as_str()),
            ("q:until", "9007199254740991"),
            ("q:ballot", "0"),
            ("set", "00000000000000aa 2"),
            ("names", "10.0.0.1:6379 /run/r%201.sock"),
            (note.as_str(), "7"),
            ("of a later version", "x"),
        ];
        let found = record(&hash(&fields)).unwrap();
        let flat = fields.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]);
        assert_eq!(record(&Value::Array(flat.collect())).as_ref(), Ok(&found));
        assert_eq!((found.max_ttl, found.run, found.floor), (Some(60_000), None, Some(31)));
        let quarantine = found.quarantine.unwrap();
        assert_eq!(quarantine.id.to_string(), former);
        assert_eq!((quarantine.until, quarantine.ballot), (SCORE_END - 1, 0));
        assert_eq!(quarantine.notes, [(RUN.parse().unwrap(), 7)]);
        let names = Names::new(["10.0.0.1:6379", "/run/r 1.sock"]);
        assert_eq!(found.set, Some(RecordedSet { id: SetId(0xaa), size: 2, names }));
        assert_eq!(record(&hash(&[])), Ok(Box::default()), "there is no such key");
    }

    #[test]
    fn unexpected_field_is_named() {
        let id = ("q:id", RUN);
        for (fields, name) in [
            (vec![("run", "")], "run"),
            (vec![("max_ttl", "-1")], "max_ttl"),
            (vec![("max_ttl", "+1")], "max_ttl"),
            (vec![("max_ttl", "9")], "max_ttl"),
            (vec![("max_ttl", "86400001")], "max_ttl"),
            (vec![("floor", "9007199254740992")], "floor"),
            (vec![("q:nonce", "1")], "q:nonce"),
            (vec![("set", "00000000000000aa")], "set"),
            (vec![("set", "00000000000000aa 0")], "set"),
            (vec![id], "q:until"),
            (vec![id, ("q:until", "1")], "q:ballot"),
            (vec![id, ("q:until", "1"), ("q:ballot", "1"), ("q:note:x", "1")], "q:note:x"),
        ] {
            let found = record(&hash(&fields));
            assert_eq!(found, Err(Unread::Malformed(name.into())), "{fields:?}");
        }
    }

    #[test]
    fn unreadable_record_has_a_reason() {
        let said = |error: &[u8]| record(&redis::parse_redis_value(error).unwrap());
        assert_eq!(said(b"-LOADING Redis is loading\r\n"), Err(Unread::Loading));
        assert_eq!(said(b"-WRONGTYPE Operation\r\n"), Err(Unread::WrongType));
        let denied = Cause::ErrorReply("NOPERM no".into());
        assert_eq!(said(b"-NOPERM no\r\n"), Err(Unread::Refused(denied)));
    }
}
