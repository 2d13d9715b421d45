//! The keys that the library keeps for itself on a master. Their names are on the wire, and fixed
//! for ever.

use redis::{RedisResult, Value};
use redlock_quorum::ServerReport;

use crate::direct::Direct;

/// The keys of one master.
pub(super) struct Keys {
    /// The hash that keeps its admission.
    pub(super) record: Vec<u8>,
    /// The ballot set of clients without quarantine. The name of every other one begins with its.
    pub(super) off: Vec<u8>,
    /// How the channels begin on which waiters are called.
    pub(super) channels: Vec<u8>,
    /// Whose ballot sets it has, or gets when it is admitted.
    owners: Vec<String>,
}

impl Keys {
    pub(super) fn of(prefix: &[u8], server: &ServerReport) -> Self {
        let record = [prefix, b"redlock-quorum:1"].concat();
        let off = [&record[..], b":ballots"].concat();
        let present = match &server.replid {
            Some(history) => format!("{}:{history}", server.run_id),
            None => server.run_id.clone(),
        };
        let owners = server.admitted_as.iter().cloned().chain([present]).collect();
        let channels = [&record[..], b":go:"].concat();
        Self { record, off, channels, owners }
    }

    /// The ballot set of a master that was admitted as `run`.
    pub(super) fn set_of(&self, run: &str) -> Vec<u8> {
        [&self.off, &b":"[..], set_name(run).as_bytes()].concat()
    }

    /// A key that is never there.
    pub(super) fn nobody(&self) -> Vec<u8> {
        [&self.off, &b":none"[..]].concat()
    }

    /// Those that are no hash, or no sorted set, as they should be.
    pub(super) fn foreign(&self, master: &mut Direct) -> RedisResult<Vec<String>> {
        let mut sets = vec![self.off.clone()];
        // The set of the life that is in quarantine is read when another one begins, or written at
        // its end.
        let quarantined = master.field(&self.record, "q:id").ok().flatten();
        for owner in self.owners.iter().chain(&quarantined) {
            let set = self.set_of(owner);
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
        let record: Vec<&[u8]> = vec![b"HGET", &self.record, b"run"];
        let sizes = sets.iter().map(|set| vec![&b"ZCARD"[..], set]);
        let probes: Vec<_> = [record].into_iter().chain(sizes).collect();
        let replies = master.probe(&probes)?;
        let found = probes.iter().zip(&replies).filter(|(_, reply)| is_of_another_type(reply));
        Ok(found.map(|(probe, _)| String::from_utf8_lossy(probe[1]).into_owned()).collect())
    }
}

/// 16 digits of the process, and 16 of the history where there is one.
fn set_name(run: &str) -> String {
    let short = |part: &str| part.get(..16).unwrap_or(part).to_owned();
    run.split(':').map(short).collect::<Vec<_>>().join(".")
}

fn is_of_another_type(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "WRONGTYPE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ballot_set_is_named_after_what_its_master_was_admitted_as() {
        let (run, history) = ("0123456789abcdef".repeat(3), "fedcba9876543210".repeat(3));
        let keys = Keys::of(b"p:", &ServerReport::default());
        let name = |run: &str| String::from_utf8(keys.set_of(run)).unwrap();
        assert_eq!(name(&run[..40]), "p:redlock-quorum:1:ballots:0123456789abcdef");
        let both = format!("{}:{}", &run[..40], &history[..40]);
        let expected = "p:redlock-quorum:1:ballots:0123456789abcdef.fedcba9876543210";
        assert_eq!(name(&both), expected);
    }
}
