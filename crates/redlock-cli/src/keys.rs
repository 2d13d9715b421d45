//! The library's own keys on a master. Their names are on the wire and never change.

use redis::Value;
use redlock_quorum::{Cause, Mark, Resource, ServerReport, SharedQueue};

use crate::direct::{Direct, error_text, is_of_another_type};

/// The keys of one master.
pub(crate) struct Keys {
    prefix: Vec<u8>,
    /// The hash that keeps its admission.
    pub(crate) record: Vec<u8>,
    /// The ballot set of clients without quarantine. The name of every other one begins with its.
    pub(crate) off: Vec<u8>,
    /// How the channels begin on which waiters are called.
    pub(crate) channels: Vec<u8>,
    /// Whose ballot sets it has, or gets when it is admitted.
    owners: Vec<String>,
}

impl Keys {
    pub(crate) fn of(prefix: &[u8], server: &ServerReport) -> Self {
        let record = [prefix, b"redlock-quorum:1"].concat();
        let off = [&record[..], b":ballots"].concat();
        let present = match &server.replid {
            Some(history) => format!("{}:{history}", server.run_id),
            None => server.run_id.clone(),
        };
        let owners = server.admitted_as.iter().cloned().chain([present]).collect();
        let channels = [&record[..], b":go:"].concat();
        Self { prefix: prefix.to_vec(), record, off, channels, owners }
    }

    /// Returns a key in the place of locks, and one of each kind of the library's own keys. None of
    /// them ever exists. The name of the first has nothing in common with the others, so that a
    /// pattern for the library's own keys does not match it.
    pub(crate) fn of_each_kind(&self) -> (Vec<u8>, [Vec<u8>; 3]) {
        let of = |kind: &str| [&self.prefix[..], kind.as_bytes(), b"acl-check"].concat();
        (of(""), [self.nobody(), of(SharedQueue::PREFIX), of(Mark::PREFIX)])
    }

    /// Returns the right to the keys of all locks, in the form of `ACL SETUSER`.
    pub(crate) fn right_to_locks(&self) -> String {
        format!("~{}*", String::from_utf8_lossy(&self.prefix))
    }

    /// The ballot set of a master that was admitted as `run`.
    pub(crate) fn set_of(&self, run: &str) -> Vec<u8> {
        [&self.off, &b":"[..], set_name(run).as_bytes()].concat()
    }

    /// A key that is never there.
    pub(crate) fn nobody(&self) -> Vec<u8> {
        [&self.off, &b":none"[..]].concat()
    }

    /// Finds keys of another type than hash and sorted set, and error replies that show no type.
    pub(crate) async fn foreign(&self, master: &mut Direct) -> Result<Types, Cause> {
        let mut types = Types::default();
        let record = master.probe(&[vec![b"HGETALL", &self.record]]).await?;
        types.add(&self.record, record.first());
        let sets = self.sets(record.first());
        let sizes: Vec<_> = sets.iter().map(|set| vec![&b"ZCARD"[..], set]).collect();
        for (set, reply) in sets.iter().zip(&master.probe(&sizes).await?) {
            types.add(set, Some(reply));
        }
        Ok(types)
    }

    /// The ballot sets that a master with this record has, or gets when it is admitted.
    fn sets(&self, record: Option<&Value>) -> Vec<Vec<u8>> {
        // The set of the life that is in quarantine is read when another one begins, or written at
        // its end.
        let quarantined = record.and_then(|record| field(record, b"q:id"));
        let mut sets = vec![self.off.clone()];
        for owner in self.owners.iter().chain(&quarantined) {
            let set = self.set_of(owner);
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
        sets
    }
}

/// The types of a master's keys.
#[derive(Default)]
pub(crate) struct Types {
    /// Keys of another type.
    pub(crate) foreign: Vec<String>,
    /// Why the types of others are unknown.
    pub(crate) unknown: Vec<Cause>,
}

impl Types {
    fn add(&mut self, key: &[u8], reply: Option<&Value>) {
        match reply {
            Some(Value::ServerError(error)) if is_of_another_type(error) => {
                self.foreign.push(Resource::from(key).to_string());
            }
            Some(Value::ServerError(error)) => {
                self.unknown.push(Cause::of_error_reply(error_text(error)));
            }
            _ => {}
        }
    }
}

/// A field of a hash, from the reply to `HGETALL`.
fn field(hash: &Value, name: &[u8]) -> Option<String> {
    let Value::Array(fields) = hash else { return None };
    let text = |value: &Value| match value {
        Value::BulkString(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    let mut pairs = fields.chunks_exact(2);
    let is_named = |pair: &&[Value]| matches!(&pair[0], Value::BulkString(at) if at == name);
    pairs.find(is_named).and_then(|pair| text(&pair[1]))
}

/// 16 digits of the process, and 16 of the history where there is one.
fn set_name(run: &str) -> String {
    let short = |part: &str| part.get(..16).unwrap_or(part).to_owned();
    run.split(':').map(short).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballot_set_is_named_after_the_admitted_identity() {
        let (run, history) = ("0123456789abcdef".repeat(3), "fedcba9876543210".repeat(3));
        let keys = Keys::of(b"p:", &ServerReport::default());
        let name = |run: &str| String::from_utf8(keys.set_of(run)).unwrap();
        assert_eq!(name(&run[..40]), "p:redlock-quorum:1:ballots:0123456789abcdef");
        let both = format!("{}:{}", &run[..40], &history[..40]);
        let expected = "p:redlock-quorum:1:ballots:0123456789abcdef.fedcba9876543210";
        assert_eq!(name(&both), expected);
    }
}
