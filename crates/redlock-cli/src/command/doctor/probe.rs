//! Queries that the library does not send, over a separate connection to each master.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_quorum::commands::Uses;
use redlock_quorum::server_error::ServerError;
use redlock_quorum::{
    Cause, FencingToken, LEAD_MAX_US, Mark, NodeReport, Quarantine, Resource, ServerReport,
    printable,
};
use serde::Serialize;

use crate::direct::{self, Direct, PATIENCE};
use crate::fire;
use crate::global::Global;
use crate::keys::Keys;
use crate::masters;
use crate::moment;
use crate::rights::{self, Tried};
use crate::session::Session;

/// The maximum number of examined marks.
const MARKS_MAX: usize = 10_000;
/// The same for queues and for locks.
const KEYS_MAX: usize = 10_000;

/// The answers of one master. Empty if it did not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Probe {
    /// Its user, by its URL.
    #[serde(skip)]
    pub(super) user: String,
    /// The database of its URL. `None` if it was not examined.
    #[serde(skip)]
    pub(super) database: Option<i64>,
    /// The features that the clients of the prefix use.
    #[serde(skip)]
    pub(super) uses: Uses,
    /// The keys of its record and its ballots.
    #[serde(skip)]
    pub(super) record: String,
    #[serde(skip)]
    pub(super) ballots: String,
    /// The prefix. Without one, other programs may have keys in the place of locks.
    #[serde(skip)]
    pub(super) prefix: String,
    /// Why it could not be examined, if so.
    pub(super) unexamined: Option<String>,
    /// Queries that failed, each with its reason. Those whose right or command is reported as
    /// missing are left out.
    pub(super) failed_queries: Vec<String>,
    /// Queries that clients with these settings need no right to, and its user lacks it.
    #[serde(skip)]
    pub(super) withheld: Vec<String>,
    /// The eviction policy. `None` if memory is not limited.
    pub(super) eviction: Option<String>,
    /// The eviction policy that a memory limit would activate. `None` if there is a limit.
    pub(super) idle_eviction: Option<String>,
    /// Whether each write is on disk before its reply. `None` if the master does not show it.
    pub(super) keeps_writes: Option<bool>,
    /// Why the master does not show that, if clients depend on it.
    #[serde(skip)]
    pub(super) unread_persistence: Option<String>,
    /// The number of connected replicas.
    pub(super) replicas: u64,
    /// Rights that are needed and its user lacks.
    pub(super) missing_rights: Vec<String>,
    /// The right to the keys of all locks, if its user has only some of them.
    #[serde(skip)]
    pub(super) narrow: Option<String>,
    /// Commands that are needed and the server does not have, or has under other names.
    pub(super) missing_commands: Vec<String>,
    /// The error for a script that uses a key which its call does not declare.
    #[serde(skip)]
    pub(super) undeclared: Option<String>,
    /// The error of every write, for example if memory is full.
    pub(super) write_refusal: Option<String>,
    /// The keys that the library keeps for itself and that are of another type.
    pub(super) foreign_keys: Vec<String>,
    /// The keys that the library keeps for itself and that expire, with the remaining time.
    #[serde(skip)]
    pub(super) expiring_keys: Vec<(String, Duration)>,
    /// Keys of another type in the place of locks.
    pub(super) foreign_locks: Vec<String>,
    /// Reservations that never expire.
    pub(super) stuck_reservations: Vec<String>,
    /// Locks that never expire.
    pub(super) stuck_locks: Vec<String>,
    /// Ballots that no client has written, or that are so far ahead that none follows them, as
    /// `member: score`.
    pub(super) foreign_scores: Vec<String>,
    /// The keys in the place of queues that are of another type.
    pub(super) foreign_queues: Vec<String>,
    /// Marks ahead of the master's clock, and values that are not marks, each with its problem.
    pub(super) future_marks: Vec<String>,
}

impl Probe {
    /// Returns `true` if no quarantine begins or ends there.
    pub(super) fn hinders_admission(&self) -> bool {
        let blocks_admission = |right: &String| rights::is_for_admission(right);
        !self.foreign_keys.is_empty()
            || self.write_refusal.is_some()
            || self.undeclared.is_some()
            || self.missing_rights.iter().any(blocks_admission)
            || self
                .missing_commands
                .iter()
                .any(|name| rights::is_for_admission(rights::right_of(name)))
    }
}

/// Queries the masters that the library reached, one after the other.
pub(super) async fn at_all(global: &Global, session: &Session, nodes: &[NodeReport]) -> Vec<Probe> {
    let mut probes = Vec::new();
    for (url, node) in session.masters.urls().zip(nodes) {
        let asked = match &node.server {
            Some(server) => {
                let asks = Asks::of(global, server);
                let probe = async |master: &mut Direct| probe(master, &asks).await;
                // A master half a second away needs so long for the queries, one after the other.
                direct::ask(&session.masters, url, PATIENCE * 5, probe).await
            }
            // Another finding has the reason.
            None => Ok(Probe::default()),
        };
        let failed = |why: Cause| Probe { unexamined: Some(why.to_string()), ..Probe::default() };
        let keys = Keys::of(masters::prefix(global), &ServerReport::default());
        let record = Resource::from(keys.record).to_string();
        probes.push(Probe { record, ..asked.unwrap_or_else(failed) });
    }
    probes
}

/// The queries for one master.
struct Asks {
    keys: Keys,
    uses: Uses,
    /// The ballot set. `None` if locks have no ballots, or if the master is not admitted.
    ballots: Option<Vec<u8>>,
    prefix: Vec<u8>,
}

impl Asks {
    fn of(global: &Global, server: &ServerReport) -> Self {
        let keys = Keys::of(masters::prefix(global), server);
        let has_quarantine = global.quarantine() == Quarantine::On;
        let uses = masters::uses(global);
        let ballots = match &server.admitted_as {
            _ if global.plain => None,
            _ if !has_quarantine => Some(keys.off.clone()),
            run => run.as_ref().map(|run| keys.set_of(run)),
        };
        Self { keys, uses, ballots, prefix: masters::prefix(global).to_vec() }
    }
}

async fn probe(master: &mut Direct, asks: &Asks) -> Result<Probe, Cause> {
    let tried = rights::tried(master, &asks.keys, asks.uses).await?;
    let mut queries = Queries { uses: asks.uses, tried, failed: Vec::new(), withheld: Vec::new() };
    let (user, database) = (master.user().to_owned(), Some(master.database()));
    let mut probe = Probe { user, database, uses: asks.uses, ..Probe::default() };
    (probe.eviction, probe.idle_eviction) = eviction(master, &mut queries).await?;
    probe.replicas = replicas(master, &mut queries).await?;
    (probe.keeps_writes, probe.unread_persistence) =
        keeps_writes(master, &mut queries, asks.uses).await?;
    let types = asks.keys.foreign(master).await?;
    for cause in types.unknown {
        queries.noted("its keys", &["+hgetall", "+zcard"], Err::<(), _>(cause))?;
    }
    probe.foreign_keys = types.foreign;
    let own = [Some(&asks.keys.record), asks.ballots.as_ref()].into_iter().flatten();
    let expiring = master.expiring(&own.cloned().collect::<Vec<_>>()).await;
    probe.expiring_keys = queries.noted("its keys", &["+pttl"], expiring)?.unwrap_or_default();
    probe.prefix = Resource::from(&asks.prefix[..]).to_string();
    if let Some(set) = &asks.ballots {
        probe.ballots = Resource::from(&set[..]).to_string();
    }
    // The finding about a key of another type has the only fix.
    if let Some(set) = asks.ballots.as_ref().filter(|_| probe.foreign_keys.is_empty()) {
        let scores = master.scores(set).await;
        let scores = queries.noted("its ballots", &["+zrevrangebyscore"], scores)?;
        probe.foreign_scores = foreign_now(scores.unwrap_or_default());
    }
    if asks.uses.queues {
        let queues = master.foreign_queues(&asks.prefix, KEYS_MAX).await;
        let queues = queries.noted("its queues", &["+scan", "+zcard"], queues)?;
        probe.foreign_queues = queues.unwrap_or_default();
    }
    let marks = future_marks(master, &asks.prefix).await;
    let marks = queries.noted("its marks", &["+scan", "+getrange", "+pttl", "+time"], marks)?;
    probe.future_marks = marks.unwrap_or_default();
    let rights = ["+scan", "+getrange", "+pttl"];
    let locks = master.bad_locks(&asks.prefix, KEYS_MAX).await;
    let locks = queries.noted("its locks", &rights, locks)?.unwrap_or_default();
    probe.foreign_locks = locks.foreign;
    (probe.stuck_reservations, probe.stuck_locks) = (locks.reservations, locks.endless);
    let last = rights::tried_last(master, &asks.keys).await?;
    queries.tried.add(last.filter(|_| asks.uses.queues));
    probe.missing_rights = queries.tried.missing;
    probe.narrow = queries.tried.narrow;
    probe.missing_commands = queries.tried.unknown;
    probe.write_refusal = queries.tried.refusal;
    probe.undeclared = queries.tried.undeclared;
    (probe.failed_queries, probe.withheld) = (queries.failed, queries.withheld);
    Ok(probe)
}

/// The queries of one master, and the failures.
struct Queries {
    uses: Uses,
    tried: Tried,
    failed: Vec<String>,
    withheld: Vec<String>,
}

impl Queries {
    /// The answer to a query, or `None` if the master replied with an error: its reason is kept,
    /// unless one of the rights that the query needs is reported as missing anyway.
    ///
    /// # Errors
    /// Why the connection cannot be used any further: then nothing else can be examined either.
    fn noted<T>(
        &mut self,
        what: &str,
        rights: &[&str],
        answer: Result<T, Cause>,
    ) -> Result<Option<T>, Cause> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(cause) if !cause.is_error_reply() => Err(cause),
            Err(_) if rights.iter().any(|right| self.is_reported(right)) => Ok(None),
            Err(cause) => {
                let is_needed = |right: &&str| rights::is_needed(right, self.uses);
                let is_withheld = is_unavailable(&cause) && !rights.iter().all(is_needed);
                let into = if is_withheld { &mut self.withheld } else { &mut self.failed };
                let failed = format!("{what}: {cause}");
                if !into.contains(&failed) {
                    into.push(failed);
                }
                Ok(None)
            }
        }
    }

    fn is_reported(&self, right: &str) -> bool {
        let is_key = |missing: &String| missing.starts_with('~');
        self.tried.missing.iter().any(|missing| missing == right || is_key(missing))
            || self.tried.unknown.iter().any(|name| rights::right_of(name) == right)
    }
}

/// Returns the active eviction policy, and the policy that a memory limit would activate.
async fn eviction(
    master: &mut Direct,
    queries: &mut Queries,
) -> Result<(Option<String>, Option<String>), Cause> {
    let memory = master.info("memory").await;
    let Some(memory) = queries.noted("INFO memory", &["+info"], memory)? else {
        return Ok((None, None));
    };
    let policy = memory.get::<String>("maxmemory_policy");
    let Some(policy) = policy.map(|policy| printable::line(&policy)) else {
        queries.failed.push("INFO memory: it has no maxmemory_policy".into());
        return Ok((None, None));
    };
    let is_limited = memory.get::<u64>("maxmemory").is_some_and(|limit| limit > 0);
    Ok(if is_limited { (Some(policy), None) } else { (None, Some(policy)) })
}

/// Returns the number of connected replicas.
async fn replicas(master: &mut Direct, queries: &mut Queries) -> Result<u64, Cause> {
    let info = master.info("replication").await;
    let info = queries.noted("INFO replication", &["+info"], info)?;
    Ok(info.and_then(|info| info.get("connected_slaves")).unwrap_or_default())
}

/// Finds out whether each write is on disk before it is answered, or why the master does not show
/// it.
async fn keeps_writes(
    master: &mut Direct,
    queries: &mut Queries,
    uses: Uses,
) -> Result<(Option<bool>, Option<String>), Cause> {
    let mut values = Vec::new();
    for name in ["appendonly", "appendfsync"] {
        let value = master.setting(name).await;
        // With a quarantine an error is harmless, because a master that lost its data grants no
        // lock. The documented user has no right to CONFIG, and hosted servers lack it.
        if let Some(cause) = value.as_ref().err().filter(|cause| is_unavailable(cause)) {
            let why = format!("CONFIG GET {name}: {cause}");
            return Ok((None, Some(why).filter(|_| !uses.quarantine)));
        }
        let value = queries.noted(&format!("CONFIG GET {name}"), &[], value)?;
        values.push(value.flatten());
    }
    let [Some(appends), Some(syncs)] = &values[..] else { return Ok((None, None)) };
    Ok((Some(appends == "yes" && syncs == "always"), None))
}

/// Returns `true` if the user lacks the right to a command, or the server lacks it.
fn is_unavailable(cause: &Cause) -> bool {
    let Cause::ErrorReply(text) = cause else { return false };
    matches!(ServerError::of(text), ServerError::Denied | ServerError::UnknownCommand)
}

/// The marks that no client makes whose masters have the right time.
async fn future_marks(master: &mut Direct, prefix: &[u8]) -> Result<Vec<String>, Cause> {
    let (marks, now) = (master.marks(prefix, MARKS_MAX).await?, master.time().await?);
    let key = [prefix, Mark::PREFIX.as_bytes()].concat();
    let unnamed = Resource::from(key).to_string();
    let wrong = |(name, mark): &(String, Option<Mark>)| {
        let name = if name.is_empty() { &unnamed } else { name };
        match mark {
            Some(mark) => of_the_future(name, mark, now),
            None => Some(format!("the value of {name} was not written by redlock")),
        }
    };
    Ok(marks.iter().filter_map(wrong).collect())
}

/// Describes the problem of a mark at this time, in milliseconds since 1970.
fn of_the_future(name: &str, mark: &Mark, now: u64) -> Option<String> {
    /// Clients ignore a run that is further ahead.
    const AHEAD_MAX_MS: u64 = 60_000;
    if mark.at > now.saturating_add(AHEAD_MAX_MS) {
        return Some(format!(
            "{name} was last completed at {}",
            moment::date_and_time(moment::of_millis(mark.at))
        ));
    }
    if let Some(at) = fire::too_far_ahead(mark.fire, moment::of_millis(now)) {
        let (fire, at) = (mark.fire, moment::date_and_time(at));
        return Some(format!(
            "{name} has --fire {fire}, more than one day ahead if it is a time ({at})"
        ));
    }
    // The seconds of a time are a thousandth of this, and other numbers are in neither range.
    let is_in_millis = (now / 2..now.saturating_mul(2)).contains(&mark.fire);
    is_in_millis.then(|| format!("{name} has --fire {}, a time in milliseconds", mark.fire))
}

/// Returns the scores that no client wrote. Clients write integers, and none that are 71 years
/// ahead of the masters' clocks. Our clock is exact enough to compare with, unless it shows a time
/// before 1970.
fn foreign_now(scores: Vec<(String, String)>) -> Vec<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    foreign(scores, u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
}

/// The scores that no client has written, at this time in microseconds since 1970.
fn foreign(scores: Vec<(String, String)>, now: u64) -> Vec<String> {
    let end = now.saturating_add(LEAD_MAX_US).min(FencingToken::MAX.get());
    let is_ours = |score: &str| score.parse::<u64>().is_ok_and(|n| n < end);
    let foreign = scores.into_iter().filter(|(_, score)| !is_ours(score));
    foreign.map(|(member, score)| format!("{member}: {score}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn future_mark_is_a_late_time_or_a_fire_in_milliseconds() {
        const NOW: u64 = 1_795_402_800_000;
        let found = |at, fire| of_the_future("report", &Mark { at, fire, by: None }, NOW);
        for fire in [0, 7, NOW / 1_000 + 86_400, 20_261_123, 202_611_230_300, Mark::END - 1] {
            assert_eq!(found(NOW + 60_000, fire), None, "{fire}");
        }
        let said = found(NOW + 60_001, 7).unwrap();
        assert_eq!(said, "report was last completed at 2026-11-23 03:01:00 UTC");
        let said = found(NOW, NOW / 1_000 + 86_401).unwrap();
        assert!(
            said.ends_with("more than one day ahead if it is a time (2026-11-24 03:00:01 UTC)")
        );
        assert!(found(NOW, NOW - 5).unwrap().contains("a time in milliseconds"));
    }

    #[test]
    fn only_whole_numbers_near_the_clock_are_ballots() {
        const NOW: u64 = 1_767_225_600_000_000;
        let (last, first) = ((NOW + LEAD_MAX_US - 1).to_string(), (NOW + LEAD_MAX_US).to_string());
        let scores = ["0", &last, &first, "9007199254740991", "1.5", "-1", "inf", "1e+17"];
        let scores = scores.map(|score| ("7".to_owned(), score.to_owned())).into();
        let found = foreign(scores, NOW);
        let found: Vec<_> = found.iter().map(|one| one.strip_prefix("7: ").unwrap()).collect();
        assert_eq!(found, [&*first, "9007199254740991", "1.5", "-1", "inf", "1e+17"]);
        let late = vec![("7".to_owned(), "9007199254740991".to_owned())];
        assert_eq!(foreign(late, 1 << 53).len(), 1, "no token follows that one");
    }
}
