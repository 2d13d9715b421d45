//! `Session`: the handle of one command, from its options to its last word.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant, SystemTime};

use redlock_quorum::commands::Uses;
use redlock_quorum::server_error::ServerError;
use redlock_quorum::{
    Cause, Guard, InvalidRequest, InvalidTtl, Lost, NodeReport, Redlock, RedlockBuilder, Resource,
    Status, TlsFault, Token, UnreleasedKey, Votes, WhyNot, quorum,
};

use crate::answers;
use crate::duration::{at_most, spelled};
use crate::exit::{Failure, HELD, UNAVAILABLE};
use crate::global::Global;
use crate::held::Held;
use crate::label::label;
use crate::lists;
use crate::masters::{self, Masters};
use crate::moment;
use crate::rights;
use crate::stderr;

/// A handle on the masters, with everything needed for a graceful shutdown.
pub(crate) struct Session {
    pub(crate) redlock: Redlock,
    pub(crate) masters: Masters,
    /// The lock of the command, or the first one if several are locked together.
    pub(crate) key: Resource,
    pub(crate) keys: Vec<Resource>,
    /// The TTL of its locks. A default TTL shrinks to the limit of the masters.
    pub(crate) ttl: Cell<Duration>,
    is_ttl_given: bool,
    pub(crate) is_verbose: bool,
    pub(crate) is_quiet: bool,
    /// The command exits without notes.
    pub(crate) leaves_quietly: Cell<bool>,
    /// How many permits the key has, if one of them is wanted, and the slot of the acquired one.
    pub(crate) permits: Option<u32>,
    pub(crate) slot: Cell<Option<u32>>,
    /// The tokens of the locks that this command has acquired.
    pub(crate) tokens: RefCell<Vec<String>>,
    /// The locks of the `redlock run`s around this command.
    pub(crate) held: Held,
    node_timeout: Duration,
    /// The note about the list of masters was printed.
    pub(crate) has_warned_of_list: Cell<bool>,
    /// Whom we trust, and who we are, in words.
    ca: String,
    certificate: String,
    prefix: Vec<u8>,
    /// The largest TTL while the masters have no record.
    max_ttl: Duration,
    uses: Uses,
}

impl Session {
    /// Creates a session for commands without a TTL. Uses the largest TTL, which allows the widest
    /// range of node timeouts, and gives the latest expiry of a remaining key.
    pub(crate) fn new(global: &Global, key: &OsStr) -> Result<Self, Failure> {
        let ttl = global.max_ttl.unwrap_or(RedlockBuilder::MAX_TTL);
        Self::build(global, &[key], Some(ttl), None)
    }

    /// Creates a session for a command that takes a TTL and a token.
    pub(crate) fn with_ttl(
        global: &Global,
        key: &OsStr,
        ttl: Option<Duration>,
    ) -> Result<Self, Failure> {
        Self::build(global, &[key], ttl, None)
    }

    /// Creates a session for commands that acquire. Only they need a label, because an invalid
    /// `REDLOCK_LABEL` must not prevent a release or a status.
    pub(crate) fn acquiring(
        global: &Global,
        keys: &[OsString],
        ttl: Option<Duration>,
    ) -> Result<Self, Failure> {
        let keys: Vec<&OsStr> = keys.iter().map(OsString::as_os_str).collect();
        Self::build(global, &keys, ttl, label(global)?)
    }

    /// Builds the handle. It does not connect yet.
    fn build(
        global: &Global,
        keys: &[&OsStr],
        given: Option<Duration>,
        label: Option<String>,
    ) -> Result<Self, Failure> {
        let max_ttl = global.max_ttl.unwrap_or(RedlockBuilder::MAX_TTL);
        let ttl = given.unwrap_or_else(|| DEFAULT_TTL.min(max_ttl));
        let masters = Masters::new(global)?;
        let keys: Vec<Resource> = keys.iter().map(|key| Resource::from(key.as_bytes())).collect();
        // Masters may allow more than the default: requests are checked when that is known.
        let known = if global.max_ttl.is_some() { ttl } else { ttl.min(RedlockBuilder::MAX_TTL) };
        let mut builder =
            masters.builder().ttl(known).quarantine(global.quarantine()).fencing(!global.plain);
        builder = builder.prefix(masters::prefix(global)).queue(!global.no_queue);
        if let Some(label) = label {
            builder = builder.label(label);
        }
        if let Some(max_ttl) = global.max_ttl {
            builder = builder.max_ttl(max_ttl);
        }
        if let Some(timeout) = global.node_timeout {
            builder = builder.node_timeout(timeout);
        }
        Ok(Self {
            redlock: masters::traced(builder, global).build()?,
            masters,
            key: keys.first().cloned().unwrap_or_else(|| "".into()),
            keys,
            ttl: Cell::new(ttl),
            is_ttl_given: given.is_some(),
            is_verbose: global.verbose,
            is_quiet: global.quiet,
            leaves_quietly: Cell::new(false),
            permits: None,
            slot: Cell::default(),
            tokens: RefCell::default(),
            held: Held::around(),
            has_warned_of_list: Cell::new(false),
            node_timeout: global
                .node_timeout
                .unwrap_or_else(|| RedlockBuilder::node_timeout_of(ttl)),
            ca: masters::ca(global),
            certificate: masters::certificate(global),
            prefix: masters::prefix(global).to_vec(),
            max_ttl,
            uses: masters::uses(global),
        })
    }

    /// Reduces a default TTL to the limit of the masters. Returns `true` if it did.
    pub(crate) fn shrinks_to_fit(&self, why: &InvalidRequest) -> bool {
        let InvalidRequest::Ttl(InvalidTtl::TooLong { max, .. }) = why else { return false };
        let shrinks = !self.is_ttl_given && *max < self.ttl.get();
        if shrinks {
            self.ttl.set(*max);
        }
        shrinks
    }

    /// Returns how long a master that lost its data does not vote, by the largest `max_ttl` of
    /// these masters, or of this command if they have no record.
    pub(crate) fn quarantine(&self, nodes: &[NodeReport]) -> Duration {
        let recorded = nodes.iter().filter_map(|node| node.server.as_ref()?.max_ttl).max();
        RedlockBuilder::quarantine_of(recorded.unwrap_or(self.max_ttl))
    }

    /// Returns the state of each master. Waits for first connections that are being made.
    pub(crate) async fn inspect(&self) -> Vec<NodeReport> {
        const PAUSE: Duration = Duration::from_millis(20);
        let until = Instant::now() + RedlockBuilder::CONNECT_TIMEOUT;
        loop {
            let nodes = self.redlock.inspect().await;
            let connects = |node: &NodeReport| matches!(node.cause, Some(Cause::NotConnected(_)));
            if Instant::now() >= until || !nodes.iter().any(connects) {
                return nodes;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns each master's present answer about the key.
    pub(crate) async fn status(&self) -> Status {
        self.redlock.status(&self.key).await
    }

    /// Describes each master's answer about each of the keys in one line, and adds the next step.
    pub(crate) async fn answers(&self) -> String {
        let mut answers = Vec::new();
        for key in &self.keys {
            answers.push(self.in_words(key, &self.redlock.status(key).await));
        }
        answers.join("; ")
    }

    /// Describes each master's answer about the key of a lost lock. A key of this lock that was not
    /// a vote is shown as such, although its master may vote by now.
    pub(crate) async fn answers_after(&self, lost: &Lost, token: &Token) -> String {
        let mut status = self.redlock.status(&lost.resource).await;
        for (node, vote) in status.nodes.iter_mut().zip(&lost.votes) {
            if node.is_admitted() && answers::token(node) == Some(token.as_str()) {
                node.not_admitted = answers::did_not_count(&vote.verdict);
            }
        }
        let answers = self.in_words(&lost.resource, &status);
        match answers::errors(&lost.votes) {
            Some(errors) => format!("{answers}; the last extension failed: {errors}"),
            None => answers,
        }
    }

    fn in_words(&self, key: &Resource, status: &Status) -> String {
        let answers = answers::standing(&key.to_string(), status, &self.tokens.borrow());
        match self.step(&answers::causes(&status.nodes)) {
            Some(step) => format!("{answers}; {step}"),
            None => answers,
        }
    }

    /// The keys, in the order in which they were given, as one name.
    pub(crate) fn names(&self) -> String {
        self.keys.iter().map(Resource::to_string).collect::<Vec<_>>().join(" and ")
    }

    /// Waits until every master has answered or its node timeout has passed. A quorum is enough to
    /// hold the lock, but requests on their way might not arrive after this process exits.
    pub(crate) async fn hear_all(&self, guard: &Guard) -> Votes {
        guard.settled().await;
        guard.votes()
    }

    /// Does `work` while the lock is held, and warns if masters cannot vote. Locks that are held
    /// together have the same masters, so the first lock shows it.
    pub(crate) async fn with_margin_watched<T>(
        &self,
        guards: &[Guard],
        work: impl Future<Output = T>,
    ) -> T {
        self.warn_of_list();
        let Some(guard) = guards.first() else { return work.await };
        tokio::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => {
                self.warn_of_margin(&guard.votes());
                done
            }
            votes = self.hear_all(guard) => {
                self.warn_of_margin(&votes);
                work.await
            }
        }
    }

    /// Prints once that the list of masters may be wrong, although it works.
    pub(crate) fn warn_of_list(&self) {
        let Some(warning) = self.redlock.list_warning() else { return };
        if !self.has_warned_of_list.replace(true) {
            let (doubt, fix) = (lists::doubt(&warning), lists::fix(&warning.lists));
            stderr::note(&format!("the list of masters may be wrong: {doubt}; {fix}"));
        }
    }

    /// Warns if a held lock depends on a bare majority, because a minority cannot vote at all. If
    /// one more master fails, the lock is lost.
    pub(crate) fn warn_of_margin(&self, votes: &Votes) {
        let incurable = answers::incurable(votes);
        if incurable.is_empty() {
            return;
        }
        let (masters, left) = (votes.len(), votes.len() - incurable.len());
        let one = |incurable: &answers::Incurable<'_>| {
            format!("{} can't vote: {}", incurable.node, incurable.cause)
        };
        let why = incurable.iter().map(one).collect::<Vec<_>>().join(", ");
        let spare = left.saturating_sub(quorum(masters));
        stderr::note(&format!(
            "{why}; {left} of {masters} masters can vote, {spare} more can fail"
        ));
    }

    /// Prints each master's answer about a key, and its latency, with `-v`.
    pub(crate) fn say(&self, key: &Resource, what: &str, votes: &Votes) {
        if self.is_verbose {
            let votes: Vec<_> = votes.iter().map(answers::timed).collect();
            stderr::note(&format!("{key} {what}: {}", votes.join(", ")));
        }
    }

    /// Returns the commands and rights that masters lack, with their costs. Empty if they lack
    /// none.
    pub(crate) async fn lacking(&self) -> String {
        rights::lacking(&self.masters, &self.prefix, self.uses).await
    }

    /// Ends the line of a failure without a quorum with the next step. Another client that holds
    /// the lock is not a fault, so no step follows it.
    pub(crate) async fn explained(&self, failure: Failure, causes: &[Cause]) -> Failure {
        match failure.code {
            HELD => failure,
            UNAVAILABLE if causes.iter().any(lists_lacks) => {
                let lacking = self.lacking().await;
                let lacking = Some(lacking).filter(|lacking| !lacking.is_empty());
                let failure =
                    lacking.iter().fold(failure, |failure, lacking| failure.with_hint(lacking));
                failure.with_hint(EXAMINE)
            }
            UNAVAILABLE => failure.with_hint(&self.next_step(causes)),
            _ => match self.step(causes) {
                Some(step) => failure.with_hint(&step),
                None => failure,
            },
        }
    }

    /// Returns the next step for these causes.
    pub(crate) fn next_step(&self, causes: &[Cause]) -> String {
        self.step(causes).unwrap_or_else(|| EXAMINE.into())
    }

    /// Returns the particular step for the cause that has to be fixed first.
    fn step(&self, causes: &[Cause]) -> Option<String> {
        if let Some(fix) = lists::fix_among(causes) {
            return Some(fix.into_owned());
        }
        if causes.iter().any(|cause| cause.tls() == Some(TlsFault::Failed)) {
            return Some(format!("redlock trusts {}", self.ca));
        }
        if causes.iter().any(|cause| cause.tls() == Some(TlsFault::Rejected)) {
            return Some(format!("redlock shows {}", self.certificate));
        }
        causes.contains(&Cause::TimedOut).then(|| {
            format!(
                "check that the masters run and can be reached, or use a longer --node-timeout \
                 (now {})",
                spelled(self.node_timeout)
            )
        })
    }

    /// Waits until the masters have acknowledged the releases, for at most two node timeouts, and
    /// names masters that may keep the key.
    pub(crate) async fn close(self) {
        if !self.leaves_quietly.get() {
            self.warn_of_list();
        }
        if let Err(unreleased) = self.redlock.shutdown(self.node_timeout * 2).await
            && !self.leaves_quietly.get()
        {
            let now = SystemTime::now();
            let keys = longest(unreleased.keys());
            let said: Vec<_> = keys.into_iter().map(|key| (&*key.node, kept(key, now))).collect();
            for (who, kept) in answers::grouped(&said, self.masters.len()) {
                stderr::note(&format!("{who} {kept}"));
            }
            for keys in unreleased.forgotten() {
                stderr::note(&format!("may be left: {keys}"));
            }
        }
    }
}

/// The next step if no cause has its own.
pub(crate) const EXAMINE: &str = "run `redlock doctor`";

/// Returns `true` if a cause names a command or right that a master lacks. It may lack more.
pub(crate) fn lists_lacks(cause: &Cause) -> bool {
    let lacks = |text: &str| {
        matches!(ServerError::of(text), ServerError::Denied | ServerError::UnknownCommand)
    };
    match cause {
        Cause::ErrorReply(text) => lacks(text),
        Cause::NotAdmitted(not) => {
            matches!(not.why, WhyNot::NoBallots | WhyNot::Denied)
                || not.step_error.as_deref().is_some_and(lacks)
        }
        _ => false,
    }
}

/// One for each key of each master: a command that waits may leave something there with each of its
/// attempts.
fn longest(keys: &[UnreleasedKey]) -> Vec<&UnreleasedKey> {
    let mut longest: Vec<&UnreleasedKey> = Vec::new();
    for key in keys {
        let is_same = |other: &&mut &UnreleasedKey| {
            (&other.node, &other.resource) == (&key.node, &key.resource)
        };
        let rank = |key: &UnreleasedKey| (key.from_wake_up, key.within);
        match longest.iter_mut().find(is_same) {
            Some(other) if rank(key) > rank(other) => *other = key,
            Some(_) => {}
            None => longest.push(key),
        }
    }
    longest
}

/// Describes the key that a master may keep, and until when.
fn kept(key: &UnreleasedKey, now: SystemTime) -> String {
    let UnreleasedKey { resource, within, from_wake_up, .. } = key;
    let kept = format!("may keep the key of {resource}");
    if *from_wake_up {
        return format!("{kept} for up to {} after it resumes", at_most(*within));
    }
    format!("{kept} until {}", moment::time_of_day(now + *within))
}

/// The default TTL of a command. It is longer than the library's, because a command may be paused
/// for longer than a server.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(30);
