//! Marks: reading them from all masters, and raising them there.

use std::time::{Duration, SystemTime};

use redlock_core::{Mark, Resource};
use redlock_protocol::marks::Reading;
use redlock_protocol::master_set::MasterSet;
use redlock_protocol::quorum::quorum;

use crate::driver::command::{Command, MarkRequest, MarkVotes};
use crate::error::AcquireError;
use crate::handle::Handle;
use crate::votes::Votes;

/// The last run completed under a name by [`Redlock::once`](crate::Redlock::once).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastRun {
    /// The start of the run, by the masters' clocks.
    pub at: SystemTime,
    /// The largest completed fire, by this run or an earlier one. `None` if there was none.
    pub fire: Option<u64>,
    /// The label of the run, if it had one.
    pub by: Option<String>,
}

impl From<&Mark> for LastRun {
    fn from(mark: &Mark) -> Self {
        let Mark { at, fire, by } = mark;
        Self {
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(*at),
            fire: Some(*fire).filter(|fire| *fire > 0),
            by: by.as_ref().map(|label| label.as_str().to_owned()),
        }
    }
}

impl Handle {
    /// Reads the mark of `name` from all masters. The error has each master's answer if fewer than
    /// a quorum of voting masters have answered.
    pub(crate) async fn read_mark(
        &self,
        name: &Resource,
    ) -> Result<Result<Reading, Votes>, AcquireError> {
        let marks = self.ask_marks(name, None, MasterSet::all(self.names.len())).await?;
        Ok(Reading::of(&marks.answers).ok_or(marks.votes))
    }

    /// Raises the mark of `name` on these masters, and keeps it for `px` milliseconds. If fewer
    /// than a quorum of voting masters do so, returns each master's answer.
    pub(crate) async fn raise_mark(
        &self,
        name: &Resource,
        (mark, px): (&Mark, u64),
        masters: MasterSet,
    ) -> Result<Result<(), Votes>, AcquireError> {
        let votes = self.ask_marks(name, Some((mark.clone(), px)), masters).await?.votes;
        Ok(if votes.granted() >= quorum(votes.len()) { Ok(()) } else { Err(votes) })
    }

    async fn ask_marks(
        &self,
        name: &Resource,
        raise: Option<(Mark, u64)>,
        masters: MasterSet,
    ) -> Result<MarkVotes, AcquireError> {
        // A name that no lock may have has no mark.
        self.key(name)?;
        self.open()?;
        let key = Mark::key(&self.settings.prefix, name);
        let node_timeout = self.settings.limits.node_timeout();
        let request = MarkRequest { key, node_timeout, raise, masters };
        let command = |reply| Command::Mark(request.clone(), reply);
        Ok(self.inbox.ask(command).await?)
    }
}
