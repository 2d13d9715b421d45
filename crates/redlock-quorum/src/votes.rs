//! `Votes`: what each master answered, for errors, guards and users.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::server_error::ServerError;
use redlock_core::{Cause, NotAdmitted, Reservation, Token, Verdict, WhyNot};
use redlock_protocol::quorum::quorum;

/// Each master's answer, in the order in which the masters were configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Votes {
    votes: Vec<NodeVote>,
    /// The holder is a caller of this process.
    is_held_here: bool,
}

/// One master's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeVote {
    /// The master: `host:port`, or the path of its socket.
    pub node: Arc<str>,
    /// The verdict of the master. [`Verdict::Pending`] if it had not answered when this was
    /// created.
    pub verdict: Verdict,
    /// Time until the answer arrived, from before the request was sent. `None` if the master did
    /// not answer. In a [`Status`](crate::Status), a master known to be down has one as well, and
    /// `None` means that its state was not known in time.
    pub latency: Option<Duration>,
    /// `Some(true)` in a [`Status`](crate::Status) if the master reports changes of keys, which
    /// wakes waiting callers. `Some(false)` before Redis 6.0, behind proxies without RESP3, and if its user
    /// lacks permission for `CLIENT TRACKING`. `None` if there is no connection, and outside of a
    /// status.
    pub tracks: Option<bool>,
    /// The reason why its answer is not valid. `None` if it is valid, or if there was no answer. In
    /// a vote, the verdict is unknown for the same reason. A [`Status`](crate::Status) still shows
    /// the answer.
    pub not_admitted: Option<NotAdmitted>,
}

impl Votes {
    pub(crate) fn new(votes: Vec<NodeVote>) -> Self {
        Self { votes, is_held_here: false }
    }

    /// Marks the votes on a lock that another caller of this process holds.
    pub(crate) fn of_this_process(self) -> Self {
        Self { is_held_here: true, ..self }
    }

    /// Shows refused ballots as grants. If no quorum has granted, a ballot is not the reason why
    /// there is no lock.
    pub(crate) fn without_ballots(mut self) -> Self {
        for vote in &mut self.votes {
            if vote.verdict == Verdict::BallotRefused {
                vote.verdict = Verdict::Granted;
            }
        }
        self
    }

    pub(crate) fn into_vec(self) -> Vec<NodeVote> {
        self.votes
    }

    /// Returns an iterator over the votes, one per master.
    pub fn iter(&self) -> std::slice::Iter<'_, NodeVote> {
        self.votes.iter()
    }

    /// Returns the number of masters.
    pub fn len(&self) -> usize {
        self.votes.len()
    }

    /// Returns `false`: a handle has at least one master.
    pub fn is_empty(&self) -> bool {
        self.votes.is_empty()
    }

    /// Returns how many masters have granted.
    pub fn granted(&self) -> usize {
        self.iter().filter(|vote| vote.verdict == Verdict::Granted).count()
    }

    /// Returns `true` if a majority granted the lock, but too few of them accepted its ballot (the
    /// proposed fencing token), because they had accepted larger ballots. No client holds the lock
    /// after that. A lease that could not be resumed for this reason stays with its holder.
    pub fn is_outbid(&self) -> bool {
        let refused = self.iter().filter(|vote| vote.verdict == Verdict::BallotRefused).count();
        refused > 0 && refused + self.granted() >= quorum(self.len())
    }

    /// Returns why a lock failed for which [`is_outbid`](Self::is_outbid) is `true`. Names other
    /// clients only if some master has the key of one.
    #[doc(hidden)]
    pub fn why_outbid(&self) -> &'static str {
        let is_held = |vote: &NodeVote| matches!(vote.verdict, Verdict::Held { .. });
        if self.iter().any(is_held) {
            "too few masters accepted its ballot: they had accepted larger ballots, and another \
             client has some of the masters"
        } else {
            "too few masters accepted its ballot: they had accepted larger ballots"
        }
    }
}

impl Votes {
    /// Returns the token on a quorum of masters, if they reported it: the holder of the lock.
    pub fn holder(&self) -> Option<&str> {
        holder(&self.votes)
    }

    /// Returns `true` if a caller of this process holds the lock, through the same handle or a
    /// clone of it. Locks of other handles are not recognized. Only the votes of
    /// [`AcquireError::Held`](crate::AcquireError::Held) contain this, and all others return
    /// `false`.
    pub fn is_held_here(&self) -> bool {
        self.is_held_here
    }

    /// Returns the label of the [`holder`](Self::holder), if its token has one.
    pub(crate) fn holder_label(&self) -> Option<String> {
        Token::parse(self.holder()?).ok()?.label().map(str::to_owned)
    }

    /// Returns the shortest time until a quorum can vote. `None` if time does not decide that,
    /// because enough masters may vote, or too few ever will.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.quorum_after(NodeVote::votes_again)
    }

    /// Returns the longest time until a quorum can vote if no client stays connected. `None` also
    /// if one has to stay.
    pub(crate) fn retry_after_visits(&self) -> Option<Duration> {
        self.quorum_after(NodeVote::by_visits)
    }

    fn quorum_after(&self, wait: impl Fn(&NodeVote) -> Option<Duration>) -> Option<Duration> {
        let may_vote = self.iter().filter(|vote| vote.is_admitted() && !vote.is_loading()).count();
        let mut waits: Vec<Duration> = self.iter().filter_map(wait).collect();
        waits.sort_unstable();
        let missing = quorum(self.len()).checked_sub(may_vote)?;
        waits.get(missing.checked_sub(1)?).copied()
    }

    /// Returns `true` if the masters may be new, so that an operator can admit them immediately:
    /// every record was read, and none shows that the prefix is in use. See
    /// [`NotAdmitted::may_be_new`].
    pub fn may_be_new(&self) -> bool {
        NotAdmitted::may_be_new(self.iter().map(|vote| vote.not_admitted.as_ref()))
    }
}

/// Returns the token on a quorum of voting masters. A reservation belongs to no client.
pub(crate) fn holder(votes: &[NodeVote]) -> Option<&str> {
    let holds = |holder: &&str| {
        votes.iter().filter(|vote| vote.token() == Some(*holder)).count() >= quorum(votes.len())
    };
    let is_token = |value: &&str| !Reservation::is_one(value.as_bytes());
    votes.iter().filter_map(NodeVote::token).filter(is_token).find(holds)
}

impl<'a> IntoIterator for &'a Votes {
    type Item = &'a NodeVote;
    type IntoIter = std::slice::Iter<'a, NodeVote>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl NodeVote {
    pub(crate) fn new(node: Arc<str>, verdict: Verdict, latency: Option<Duration>) -> Self {
        let not_admitted = match &verdict {
            Verdict::Unknown(Cause::NotAdmitted(why)) => Some((**why).clone()),
            _ => None,
        };
        Self { node, verdict, latency, tracks: None, not_admitted }
    }
}

impl NodeVote {
    /// Returns `true` if the answer of the master is valid, as far as is known.
    pub fn is_admitted(&self) -> bool {
        self.not_admitted.is_none() && !matches!(self.verdict, Verdict::Unknown(Cause::TwinOf(_)))
    }

    /// Returns the token that the master has, if it is valid.
    pub(crate) fn token(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Held { token, .. } if self.is_admitted() => token.as_deref(),
            _ => None,
        }
    }

    /// Returns `true` if the master is loading its data from disk. Before clients begin the
    /// quarantine of another master, they wait for it, at most as long as a quarantine lasts.
    pub fn is_loading(&self) -> bool {
        match (&self.not_admitted, &self.verdict) {
            (Some(not), _) => not.why == WhyNot::Loading,
            (None, Verdict::Unknown(Cause::ErrorReply(text))) => {
                ServerError::of(text) == ServerError::Loading
            }
            _ => false,
        }
    }

    /// Returns the shortest time until it votes again. `None` if it votes, or if waiting does not
    /// help, for example because an operator must change something before its quarantine can begin.
    pub fn votes_again(&self) -> Option<Duration> {
        self.curable()?.votes_again
    }

    /// Returns the longest time until it votes again if clients connect only briefly. `None` also
    /// if only a long-running client ends its quarantine.
    pub fn by_visits(&self) -> Option<Duration> {
        self.curable()?.by_visits
    }

    fn curable(&self) -> Option<&NotAdmitted> {
        self.not_admitted.as_ref().filter(|not| not.is_curable())
    }
}

impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, vote) in self.votes.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{vote}")?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeVote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.node, self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_quarantine(millis: u64) -> NodeVote {
        let mut why = NotAdmitted::new(WhyNot::Restarted);
        why.in_quarantine = true;
        why.votes_again = Some(Duration::from_millis(millis));
        NodeVote::new("n".into(), Verdict::Unknown(Cause::NotAdmitted(why.into())), None)
    }

    /// A silent master may vote at any time. The q-th of the masters that may vote decides.
    #[test]
    fn a_quorum_can_vote_when_enough_quarantines_are_over() {
        let vote = |verdict| NodeVote::new("n".into(), verdict, None);
        let (granted, silent) =
            (|| vote(Verdict::Granted), || vote(Verdict::Unknown(Cause::TimedOut)));
        let after = |votes: Vec<NodeVote>| Votes::new(votes).retry_after();
        let secs = |secs| Some(Duration::from_secs(secs));
        let one = vec![granted(), in_quarantine(3_000), in_quarantine(2_000)];
        assert_eq!(after(one), secs(2));
        let all = vec![in_quarantine(3_000), in_quarantine(2_000), in_quarantine(9_000)];
        assert_eq!(after(all), secs(3));
        assert_eq!(after(vec![granted(), silent(), in_quarantine(2_000)]), None);
        let loading = || vote(Verdict::Unknown(Cause::ErrorReply("LOADING it loads".into())));
        assert_eq!(after(vec![granted(), loading(), in_quarantine(2_000)]), secs(2));
        let replica = NotAdmitted::new(WhyNot::Replica);
        let replica = || vote(Verdict::Unknown(Cause::NotAdmitted(replica.clone().into())));
        assert_eq!(after(vec![replica(), replica(), in_quarantine(2_000)]), None);
        let visited = |millis| {
            let mut vote = in_quarantine(1_000);
            let why = vote.not_admitted.as_mut().unwrap();
            why.by_visits = Some(Duration::from_millis(millis));
            vote
        };
        let by_visits = |votes: Vec<NodeVote>| Votes::new(votes).retry_after_visits();
        assert_eq!(by_visits(vec![granted(), visited(5_000), visited(4_000)]), secs(4));
        assert_eq!(by_visits(vec![in_quarantine(1_000), visited(4_000), visited(6_000)]), secs(6));
        assert_eq!(by_visits(vec![in_quarantine(1_000), in_quarantine(1_000), visited(4)]), None);
        let denied = || {
            let mut why = NotAdmitted::new(WhyNot::New);
            why.votes_again = Some(Duration::from_secs(5));
            why.step_error = Some("NOPERM no EVAL".into());
            vote(Verdict::Unknown(Cause::NotAdmitted(why.into())))
        };
        assert_eq!(after(vec![denied(), denied(), in_quarantine(2_000)]), None);
    }

    /// If one has a record, `init` would be refused.
    #[test]
    fn masters_are_new_only_if_none_shows_use_of_the_prefix() {
        let why = |why| Verdict::Unknown(Cause::NotAdmitted(NotAdmitted::new(why).into()));
        let may_be_new = |verdicts: &[Verdict]| {
            let vote = |verdict: &Verdict| NodeVote::new("n".into(), verdict.clone(), None);
            Votes::new(verdicts.iter().map(vote).collect()).may_be_new()
        };
        let (new, silent) = (why(WhyNot::New), Verdict::Unknown(Cause::TimedOut));
        assert!(may_be_new(&[new.clone(), new.clone(), new.clone()]));
        assert!(!may_be_new(&[new.clone(), new.clone(), silent.clone()]), "one was not read");
        for used in [
            why(WhyNot::Emptied),
            why(WhyNot::Restarted),
            why(WhyNot::Incomplete),
            Verdict::Granted,
            Verdict::HELD,
        ] {
            assert!(!may_be_new(&[new.clone(), used.clone(), new.clone()]), "{used}");
        }
        assert!(!may_be_new(&[silent.clone(), silent.clone(), silent]));
    }

    #[test]
    fn lock_is_outbid_if_granted_by_a_majority_with_refused_ballots() {
        let is_outbid = |verdicts: &[Verdict]| {
            let vote = |verdict: &Verdict| NodeVote::new("n".into(), verdict.clone(), None);
            Votes::new(verdicts.iter().map(vote).collect()).is_outbid()
        };
        const REFUSED: Verdict = Verdict::BallotRefused;
        assert!(is_outbid(&[REFUSED, Verdict::Granted, Verdict::HELD]));
        assert!(is_outbid(&[REFUSED, REFUSED, Verdict::Unknown(Cause::TimedOut)]));
        assert!(!is_outbid(&[REFUSED, Verdict::HELD, Verdict::HELD]));
        assert!(!is_outbid(&[REFUSED, Verdict::HELD, Verdict::Unknown(Cause::TimedOut)]));
        assert!(!is_outbid(&[Verdict::Granted, Verdict::Granted, Verdict::HELD]));
    }

    #[test]
    fn without_ballots_a_refused_one_is_a_grant() {
        let verdicts = [Verdict::BallotRefused, Verdict::HELD, Verdict::Unknown(Cause::TimedOut)];
        let vote = |verdict| NodeVote::new("n".into(), verdict, None);
        let votes = Votes::new(verdicts.into_iter().map(vote).collect()).without_ballots();
        assert_eq!(votes.to_string(), "n granted, n held, n timed out");
    }

    #[test]
    fn outbid_lock_blames_other_clients_only_if_one_was_seen() {
        let why = |third: Verdict| {
            let verdicts = [Verdict::BallotRefused, Verdict::BallotRefused, third];
            let vote = |verdict| NodeVote::new("n".into(), verdict, None);
            Votes::new(verdicts.into_iter().map(vote).collect()).why_outbid()
        };
        assert!(why(Verdict::HELD).ends_with("another client has some of the masters"));
        assert!(!why(Verdict::Granted).contains("client"));
    }

    #[test]
    fn votes_read_as_one_line() {
        let vote = |node: &str, verdict| NodeVote::new(node.into(), verdict, None);
        let held =
            Verdict::Held { token: Some("tok".into()), ttl: Some(Duration::from_millis(1_500)) };
        let votes = Votes::new(vec![
            vote("a:1", Verdict::Granted),
            vote("b:1", held),
            vote("c:1", Verdict::Unknown(Cause::TimedOut)),
            vote("d:1", Verdict::NotOurs),
        ]);
        assert_eq!(votes.to_string(), "a:1 granted, b:1 held (1.5s), c:1 timed out, d:1 not ours");
    }
}
