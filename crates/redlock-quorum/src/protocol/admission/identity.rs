//! Who a master is: the process, and the history that its data comes from.

/// The process of a server: the first 16 of the 40 hex digits of its `run_id`.
///
/// Those digits name its ballot set too. 64 random bits tell the processes of one master apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunId(pub(crate) u64);

/// A replication history: the first 16 of the 40 hex digits of `master_replid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ReplId(pub(crate) u64);

/// What a master is admitted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Identity {
    /// The process.
    pub(crate) run: RunId,
    /// Where its data came from: given while `second_repl_offset` is not -1. Such a master was a
    /// replica, or was started from a snapshot of one, and keeps its `run_id` all the same.
    pub(crate) replid: Option<ReplId>,
}

impl Identity {
    /// A master that was never a replica.
    pub(crate) fn of(run: RunId) -> Self {
        Self { run, replid: None }
    }

    /// Whether what was recorded for `self` is good for a master that is `present` now.
    ///
    /// A server forgets that it was a replica after `repl-backlog-ttl`. So `R:X` is good for `R`
    /// too, never the other way round, and never for another history.
    pub(crate) fn covers(self, present: Self) -> bool {
        self.run == present.run && (present.replid.is_none() || self.replid == present.replid)
    }
}
