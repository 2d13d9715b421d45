//! `NotAdmitted`: why a master does not vote.

use std::fmt;
use std::time::Duration;

use crate::duration::at_least;
use crate::lists::Lists;
use crate::server_error::ServerError;

/// The reason why a reachable master does not vote, and the time until it may vote again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NotAdmitted {
    /// The reason.
    pub why: WhyNot,
    /// `true` if its quarantine has begun. Otherwise some client has to begin it.
    pub in_quarantine: bool,
    /// The shortest time until it may vote again. If no quarantine has begun, the length of a
    /// quarantine. `None` if no time decides it.
    pub votes_again: Option<Duration>,
    /// The longest time until it votes again if every client that wants a lock stays only
    /// briefly. In that case the clocks of two masters end the quarantine. `None` if the quarantine
    /// ends only while one client stays connected, because no other master votes, and if no time
    /// decides it.
    pub by_visits: Option<Duration>,
    /// The server's error in answer to the last step towards its admission, if any.
    pub step_error: Option<String>,
    /// The recorded set of masters and the list of this client, if they do not fit.
    pub lists: Option<Box<Lists>>,
}

/// The reason for which a master does not vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhyNot {
    /// A replica, which follows another server.
    Replica,
    /// Neither a master nor a replica.
    NotMaster,
    /// A node of a cluster.
    Cluster,
    /// A server that is still reading its data from disk.
    Loading,
    /// The facts that decide whether it may vote cannot be read.
    Denied,
    /// The key of its admission record is not a record: it has the wrong type, or a malformed
    /// field.
    BadRecord,
    /// A master that may have just lost its data, and is being checked.
    Checked,
    /// The master has no admission record, and this client has read none on any master: all masters
    /// are new, or all of them were emptied.
    New,
    /// The master has no admission record, but this client has read one on some master, perhaps
    /// deleted since, so the prefix is in use. The master restarted empty, was flushed, or was
    /// added later, and these three cases look the same.
    Emptied,
    /// A master admitted with another identity: it restarted, or was a replica for a while. Or it
    /// lost its ballots, and its quarantine has begun since: the record is the same in both cases.
    Restarted,
    /// Lost or incomplete ballots.
    Incomplete,
    /// This client has read a newer record from the same process. A copy of the data was restored,
    /// and locks granted since are gone.
    Outdated,
    /// Clients without a quarantine use this prefix, but this client uses a quarantine.
    UsedWithoutQuarantine,
    /// Clients with a quarantine use this prefix, but this client uses none.
    UsedWithQuarantine,
    /// A ballot score that no client can have written.
    ScoreTooLarge,
    /// No support for ballots: the server is older than Redis 6.2, or its user lacks the right to
    /// `ZADD`.
    NoBallots,
    /// No reports of a loss of data: the server or a proxy lacks RESP3 or `CLIENT TRACKING`, or the
    /// user lacks the rights. A client without ballots would not notice a loss.
    ReportsNoLoss,
    /// A master that did not vote at the time of the request, but votes now.
    AskedTooEarly,
    /// A voting master of a set whose number differs by two or more from the length of this
    /// client's list. The list is wrong.
    SetSize,
    /// A voting master in a list whose masters belong to different sets. The list is wrong, or
    /// `redlock init` is under way.
    SetsDiffer,
}

impl NotAdmitted {
    /// Creates a reason that no quarantine ends.
    pub fn new(why: WhyNot) -> Self {
        let (votes_again, by_visits, step_error, lists) = (None, None, None, None);
        Self { why, in_quarantine: false, votes_again, by_visits, step_error, lists }
    }

    /// Makes the cause for a list of masters that does not fit the recorded set.
    pub fn wrong_list(why: WhyNot, lists: Lists) -> Self {
        Self { lists: Some(Box::new(lists)), ..Self::new(why) }
    }

    /// Returns `true` if waiting may help: a quarantine ends, and a server finishes loading its
    /// data.
    pub fn is_curable(&self) -> bool {
        if self.why.is_ended_by_quarantine() {
            return self.in_quarantine
                || !self.step_error.as_deref().is_some_and(|text| ServerError::of(text).lasts());
        }
        // Sets differ for a moment while `init` writes them.
        let passes = matches!(self.why, WhyNot::Loading | WhyNot::Checked | WhyNot::SetsDiffer);
        passes || self.why == WhyNot::AskedTooEarly
    }

    /// Returns `true` if all masters may be new, so that an operator can admit them immediately.
    /// The items are the reasons why masters do not vote. An item is `None` if its master votes,
    /// which takes an admission, or was not read, because it could have a record and the key of a
    /// holder.
    pub fn may_be_new<'a>(masters: impl IntoIterator<Item = Option<&'a Self>>) -> bool {
        let is_new = |master: Option<&Self>| master.is_some_and(|not| not.why == WhyNot::New);
        masters.into_iter().all(is_new)
    }

    fn compare(&self, lists: &Lists, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.why == WhyNot::SetsDiffer {
            write!(f, "the masters of this client's list belong to different sets: ")?;
        }
        write!(f, "{lists}")
    }

    fn state(&self) -> &'static str {
        match (self.why.is_ended_by_quarantine(), self.in_quarantine) {
            (true, true) => ", in quarantine",
            (true, false) => ", its quarantine has not started",
            (false, _) => "",
        }
    }
}

impl WhyNot {
    /// Returns `true` if the master may have lost a lock, and votes again after its quarantine.
    pub fn is_ended_by_quarantine(self) -> bool {
        let restarted = matches!(self, Self::New | Self::Emptied | Self::Restarted);
        restarted || matches!(self, Self::Incomplete | Self::Outdated)
    }

    /// Returns `true` if the list of the client does not fit the recorded set of masters.
    pub fn is_wrong_list(self) -> bool {
        matches!(self, Self::SetSize | Self::SetsDiffer)
    }
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lists {
            Some(lists) => self.compare(lists, f)?,
            None => write!(f, "{}{}", self.why, self.state())?,
        }
        if let Some(wait) = self.votes_again {
            write!(f, "; votes again in {}", at_least(wait))?;
            // Clients that stay only briefly take longer, or never end it.
            if self.by_visits != Some(wait) {
                f.write_str(" if a client stays connected")?;
            }
        }
        match &self.step_error {
            Some(error) => write!(f, "; {error}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replica => "it is a replica; use independent masters",
            Self::NotMaster => "it is not a master",
            Self::Cluster => "it is a cluster node; use independent masters",
            Self::Loading => "it is loading its data",
            Self::Denied => "its INFO or admission record is unreadable",
            Self::BadRecord => "its admission record is invalid",
            Self::Checked => "may have lost its data, being checked",
            Self::New => "new, or lost its data",
            Self::Emptied => "lost its data, or was added later",
            Self::Restarted => "restarted, or lost its fencing data",
            Self::Incomplete => "lost its fencing data",
            Self::Outdated => "restored from an old copy",
            Self::UsedWithoutQuarantine => {
                "other clients use this prefix without a quarantine; use --quarantine off here \
                    too, or convert it with `redlock init --again`"
            }
            Self::UsedWithQuarantine => {
                "other clients use this prefix with a quarantine; use --quarantine on here too, \
                    or another prefix"
            }
            Self::AskedTooEarly => "it was not voting yet when the request was sent",
            Self::NoBallots => {
                "it cannot store the ballots of fencing tokens (Redis 6.2 or newer, and +zadd)"
            }
            Self::ReportsNoLoss => {
                "it cannot report data loss, which --plain with a quarantine requires; enable \
                    CLIENT TRACKING (Redis 6.0 over RESP3, no proxy, +client|tracking \
                    +client|caching), drop --plain, or use --quarantine off"
            }
            Self::SetSize => "it belongs to a set of another number of masters",
            Self::SetsDiffer => "the masters of this client's list belong to different sets",
            Self::ScoreTooLarge => "a score of its ballots is 2^53 or more",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Names, RecordedSet, SetId};

    fn quarantine(why: WhyNot, millis: u64) -> NotAdmitted {
        let votes_again = Some(Duration::from_millis(millis));
        NotAdmitted { in_quarantine: true, votes_again, ..NotAdmitted::new(why) }
    }

    #[test]
    fn reason_has_a_remaining_time_that_is_rounded_up() {
        let by_visits = |millis| Some(Duration::from_millis(millis));
        let restarted = quarantine(WhyNot::Restarted, 63_810);
        let begun = NotAdmitted { by_visits: by_visits(129_810), ..restarted.clone() };
        assert_eq!(
            begun.to_string(),
            "restarted, or lost its fencing data, in quarantine; votes again in 63.9 s if \
             a client stays connected"
        );
        let almost_over = NotAdmitted { by_visits: by_visits(63_810), ..restarted };
        assert_eq!(
            almost_over.to_string(),
            "restarted, or lost its fencing data, in quarantine; votes again in 63.9 s"
        );
        let new = NotAdmitted { in_quarantine: false, ..quarantine(WhyNot::New, 66_000) };
        assert_eq!(
            new.to_string(),
            "new, or lost its data, its quarantine has not started; votes again in 66.0 s if a client \
                stays connected"
        );
        let loading = NotAdmitted::new(WhyNot::Loading);
        assert_eq!(loading.to_string(), "it is loading its data");
    }

    #[test]
    fn wrong_list_shows_both_lists() {
        let names = |count: u8| Names::new((1..=count).map(|one| format!("10.0.0.{one}:6379")));
        let of = |why, size: u8, listed| {
            let set = RecordedSet { id: SetId(1), size, names: names(size) };
            NotAdmitted::wrong_list(why, Lists::new(Some(set), names(listed)))
        };
        let size = of(WhyNot::SetSize, 3, 1);
        assert_eq!(
            size.to_string(),
            "it belongs to a set of 3 masters (10.0.0.1:6379, 10.0.0.2:6379, 10.0.0.3:6379), and \
             this client lists 1 (10.0.0.1:6379)"
        );
        let split = of(WhyNot::SetsDiffer, 2, 1);
        assert_eq!(
            split.to_string(),
            "the masters of this client's list belong to different sets: it belongs to a set of 2 \
             masters (10.0.0.1:6379, 10.0.0.2:6379), and this client lists 1 (10.0.0.1:6379)"
        );
        assert!(!size.is_curable() && split.is_curable());
    }

    #[test]
    fn waiting_ends_a_quarantine_but_restores_no_missing_right() {
        let denied = |in_quarantine| NotAdmitted {
            in_quarantine,
            step_error: Some(
                "NOPERM this user has no permissions to run the 'eval' command".into(),
            ),
            ..NotAdmitted::new(WhyNot::New)
        };
        assert!(quarantine(WhyNot::New, 5).is_curable());
        assert!(NotAdmitted::new(WhyNot::Restarted).is_curable(), "some client begins it");
        assert!(!denied(false).is_curable());
        assert!(denied(true).is_curable(), "another client, with more rights, has begun it");
        for lasting in [WhyNot::Replica, WhyNot::Cluster, WhyNot::Denied, WhyNot::ReportsNoLoss] {
            assert!(!NotAdmitted::new(lasting).is_curable(), "{lasting:?}");
        }
    }
}
