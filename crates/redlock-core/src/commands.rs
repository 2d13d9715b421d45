//! The commands that are sent to masters, and what each is for.
//!
//! The only such list. The connection, `redlock doctor`, `redlock init` and `redlock run` read in
//! it what a missing command costs.

/// A use of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Purpose {
    /// Acquiring and releasing locks. A client that cannot release a lock does not acquire it.
    Locks,
    /// Extending locks.
    Extensions,
    /// Reading until when a lock is held, which each extension does as well.
    Holders,
    /// Calling scripts that the server has loaded by their digests.
    Digests,
    /// Ballots, from which fencing tokens come.
    Ballots,
    /// Reading which server answers, and its record.
    Facts,
    /// Beginning and ending quarantines.
    Admission,
    /// Cancelling late requests.
    Barrier,
    /// Noticing changes of keys.
    Tracking,
    /// The queue between processes.
    Queues,
    /// `redlock status` without a key, and `redlock release --force`.
    Listing,
}

impl Purpose {
    /// Returns the cost if a command for this purpose is missing.
    pub fn cost(self) -> &'static str {
        match self {
            Self::Locks => "locks are not acquired",
            Self::Extensions => "locks are not extended",
            Self::Holders => "locks are not extended, and waiting for a held lock fails",
            Self::Digests => "the text of a script is sent with each request",
            Self::Ballots => "it takes no ballots, so it grants no locks with fencing tokens",
            Self::Facts => "it does not vote",
            Self::Admission => "quarantines cannot start or finish",
            Self::Barrier => "late requests cannot be cancelled",
            Self::Tracking => "waiting clients are not woken",
            Self::Queues => "waiting clients are not served in order of arrival",
            Self::Listing => {
                "redlock status without a key and redlock release --force do not work there"
            }
        }
    }
}

/// A command that is sent to masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The right to it, in the form of `ACL SETUSER`.
    pub right: &'static str,
    /// Its purposes. The first one in use decides what it costs if the command is missing.
    pub purposes: &'static [Purpose],
}

impl Sent {
    /// Returns the name of the command without its subcommand, because a server can only rename
    /// whole commands.
    pub fn name(&self) -> String {
        let name = self.right.trim_start_matches('+');
        name.split('|').next().unwrap_or(name).to_uppercase()
    }

    /// Returns the first command of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SENT.iter().find(|sent| sent.name() == name)
    }

    /// Returns `true` if it is for this purpose, among others.
    pub fn is_for(&self, purpose: Purpose) -> bool {
        self.purposes.contains(&purpose)
    }
}

/// The features that the clients of a prefix use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
    /// Masters have a quarantine.
    pub quarantine: bool,
    /// Locks have fencing tokens.
    pub ballots: bool,
    /// Waiters queue.
    pub queues: bool,
}

impl Uses {
    /// Returns `true` if these clients need the command.
    pub fn needs(self, sent: &Sent) -> bool {
        sent.purposes.iter().any(|purpose| self.has(*purpose))
    }

    fn has(self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Ballots => self.ballots,
            Purpose::Admission => self.quarantine,
            Purpose::Queues => self.queues,
            _ => true,
        }
    }

    /// Returns the costs to these clients of missing rights, each cost once. A right that
    /// begins with `~` or `&` is the one to the keys or channels of a prefix.
    pub fn costs<'a>(self, rights: impl IntoIterator<Item = &'a str>) -> String {
        let mut costs: Vec<&str> = Vec::new();
        for cost in rights.into_iter().map(|right| self.cost(right)) {
            if !costs.contains(&cost) {
                costs.push(cost);
            }
        }
        costs.join("; ")
    }

    fn cost(self, right: &str) -> &'static str {
        let purposes = match right.as_bytes().first() {
            Some(b'~') => &[Purpose::Admission, Purpose::Ballots, Purpose::Queues],
            Some(b'&') => &[Purpose::Queues][..],
            _ => SENT.iter().find(|sent| sent.right == right).map_or(&[][..], |sent| sent.purposes),
        };
        let used = purposes.iter().find(|purpose| self.has(**purpose));
        used.unwrap_or(&Purpose::Locks).cost()
    }
}

impl Default for Uses {
    fn default() -> Self {
        Self { quarantine: true, ballots: true, queues: true }
    }
}

/// The commands. Commands that save time where a server has them are not among them.
pub const SENT: [Sent; 28] = {
    use Purpose::{
        Admission, Ballots, Barrier, Digests, Extensions, Facts, Holders, Listing, Locks, Queues,
        Tracking,
    };
    const fn sent(right: &'static str, purposes: &'static [Purpose]) -> Sent {
        Sent { right, purposes }
    }
    [
        sent("+set", &[Locks]),
        sent("+get", &[Locks, Queues]),
        sent("+del", &[Locks, Admission, Queues]),
        sent("+pttl", &[Holders]),
        sent("+pexpire", &[Extensions, Queues]),
        sent("+eval", &[Locks, Admission, Queues]),
        sent("+evalsha", &[Digests]),
        sent("+getrange", &[Listing]),
        sent("+scan", &[Listing]),
        sent("+info", &[Facts]),
        sent("+client|id", &[Facts, Barrier]),
        sent("+client|kill", &[Barrier]),
        sent("+client|tracking", &[Tracking]),
        sent("+client|caching", &[Tracking]),
        sent("+hgetall", &[Facts, Admission]),
        sent("+hset", &[Admission]),
        sent("+hdel", &[Admission]),
        sent("+zcard", &[Admission, Queues]),
        sent("+zadd", &[Ballots, Admission, Queues]),
        sent("+zscore", &[Queues, Ballots]),
        sent("+zrevrangebyscore", &[Admission]),
        sent("+time", &[Admission, Queues]),
        sent("+zrange", &[Queues]),
        sent("+zrank", &[Queues]),
        sent("+zrem", &[Queues]),
        sent("+pubsub", &[Queues]),
        sent("+publish", &[Queues]),
        sent("+subscribe", &[Queues]),
    ]
};

/// The right that a URL with a database needs. It is part of the log-in.
pub const SELECT: &str = "+select";

/// An optional command that saves time or improves messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    /// Its name, as `COMMAND INFO` takes it.
    pub command: &'static str,
    /// The rights to it, in the form of `ACL SETUSER`.
    pub rights: &'static [&'static str],
}

/// The commands that no client needs. A server rejects a right to a command that it does not know.
pub const EXTRAS: [Extra; 3] = [
    Extra { command: "client|setinfo", rights: &["+client|setinfo"] },
    Extra { command: "delifeq", rights: &["+command|info", "+delifeq"] },
    Extra { command: "delex", rights: &["+command|info", "+delex"] },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_named_once_and_only_for_used_features() {
        let uses = Uses::default();
        assert_eq!(uses.costs(["+zadd"]), Purpose::Ballots.cost());
        let two = uses.costs(["+set", "+get", "+client|kill"]);
        let expected = "locks are not acquired; late requests cannot be cancelled";
        assert_eq!(two, expected);
        assert_eq!(uses.costs(["&locks:*", "+zrank"]), Purpose::Queues.cost());
        let plain = Uses { quarantine: false, ballots: false, queues: true };
        assert_eq!(plain.costs(["+zadd", "+zcard"]), Purpose::Queues.cost());
    }

    /// Each command that a script calls is in the list, so that its absence has a cost.
    #[test]
    fn commands_of_all_scripts_are_listed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/scripts");
        let mut called = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let script = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for part in
                ["redis.call('", "redis.pcall('"].iter().flat_map(|it| script.split(it).skip(1))
            {
                let name = part.split('\'').next().unwrap();
                assert!(Sent::named(name).is_some(), "{name}");
                called += 1;
            }
        }
        assert!(called > 20, "{called}");
    }
}
