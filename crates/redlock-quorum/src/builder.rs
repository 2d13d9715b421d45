//! `RedlockBuilder`: every tunable, its default, and the reason for the default.

mod from_env;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::admission::MAX_TTL_MAX;
use redlock_core::{
    Clock, InvalidLabel, InvalidNode, Label, Node, RedisNode, RedisSetup, Resource, Tls, Ttl,
};
use redlock_protocol::quorum::MASTERS_MAX;

use crate::counters::Counters;
use crate::driver::Setup;
use crate::driver::slot::Slot;
use crate::environment::label;
use crate::environment::masters::Master;
use crate::environment::origins::{Origins, given_by};
use crate::environment::pem::Pem;
use crate::environment::variables::{
    self, LABEL, NODE_TIMEOUT, PREFIX, TLS_CA, TLS_CERT, Variable,
};
use crate::handle::Handle;
use crate::settings::{
    BuildError, GivenLabel, InvalidRequest, MAX_TTL, Quarantine, Settings, node_timeout,
};

/// Builds a [`Redlock`](crate::Redlock). What is out of range is refused by [`build`](Self::build),
/// with the limit.
#[derive(Clone, Default)]
#[must_use]
pub struct RedlockBuilder {
    urls: Vec<Url>,
    masters: Vec<Arc<dyn Node>>,
    clock: Option<Clock>,
    prefix: Vec<u8>,
    ttl: Option<Duration>,
    max_ttl: Option<Duration>,
    quarantine: Quarantine,
    is_plain: bool,
    is_unqueued: bool,
    hands_nothing_on: bool,
    wait: Option<Duration>,
    node_timeout: Option<Duration>,
    connect_timeout: Option<Duration>,
    clock_guard: Option<Duration>,
    label: GivenLabel,
    tls: Tls,
    seed: Option<u64>,
    origins: Origins,
}

/// One master's URL, and its source unless the program gave it.
#[derive(Clone)]
struct Url {
    url: String,
    origin: Option<String>,
}

impl RedlockBuilder {
    /// The default of [`max_ttl`](Self::max_ttl): 60 s.
    pub const MAX_TTL: Duration = MAX_TTL;
    /// The default of [`connect_timeout`](Self::connect_timeout): 1 s.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

    /// The default of [`node_timeout`](Self::node_timeout) for a lock with this TTL: 50 ms or a
    /// tenth of the TTL, whichever is shorter.
    pub fn node_timeout_of(ttl: Duration) -> Duration {
        node_timeout(ttl)
    }

    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The masters: 1 to 15 independent servers, five is the normal number. Each is
    /// `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS, or
    /// `unix:///path?db=..&user=..&pass=..`. All clients of a namespace must be given the same.
    pub fn nodes<U>(mut self, urls: U) -> Self
    where
        U: IntoIterator,
        U::Item: Into<String>,
    {
        self.urls.extend(urls.into_iter().map(|url| Url { url: url.into(), origin: None }));
        self
    }

    /// Masters that were named outside of the program, each with its place.
    #[doc(hidden)]
    pub fn named(mut self, masters: impl IntoIterator<Item = Master>) -> Self {
        let named = |Master { url, origin }| Url { url, origin: Some(origin) };
        self.urls.extend(masters.into_iter().map(named));
        self
    }

    /// Masters that are no servers, such as the simulated ones of `redlock-testkit`; they follow
    /// those of [`nodes`](Self::nodes).
    pub fn masters(mut self, masters: Vec<Arc<dyn Node>>) -> Self {
        self.masters.extend(masters);
        self
    }

    /// The clock that all deadlines go by. Default: [`Clock::system`]. Tests in virtual time
    /// give [`Clock::paused`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The prefix of every key. Default: none. All clients that are to exclude each other must have
    /// the same prefix.
    pub fn prefix(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.origins.remove(PREFIX.name());
        self.prefix = prefix.into();
        self
    }

    /// How long a lease lasts without extension: 10 ms to what masters allow, which is known when
    /// they were asked: see [`max_ttl`](Self::max_ttl). Default: 10 s, long enough to survive a pause of some seconds, short enough to wait for after a
    /// crash.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The largest TTL of this namespace: 10 ms to 24 h. Default: 60 s. A master that may have lost
    /// its keys does not vote for 1.1 times as long, so keep it short and let the keeper extend.
    ///
    /// It counts only while no master has a record: from then on the smallest that masters have is
    /// the limit, whatever is given here. The default TTL shrinks to it; a longer one that was
    /// given is refused. `redlock init --max-ttl D` raises what the masters have; with `--again`,
    /// which states that no lock is alive, it lowers that, too.
    ///
    /// Give it where the masters have more than 60 s, and change both together. Where all masters
    /// have come back with old records, the quarantine that this handle begins is as long as the
    /// larger of theirs and of what was given here.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.origins.remove(variables::MAX_TTL.name());
        self.max_ttl = Some(max_ttl);
        self
    }

    /// Whether a master that may have lost its keys is kept from voting for a while. Default:
    /// [`Quarantine::On`], because a master that restarts empty grants again what another holds,
    /// and nobody notices. All clients of a namespace must have the same.
    pub fn quarantine(mut self, quarantine: Quarantine) -> Self {
        self.quarantine = quarantine;
        self
    }

    /// Whether locks have fencing tokens ([`Guard::fencing_token`](crate::Guard::fencing_token)).
    /// Default: yes. Without them, and without [queues](Self::queue), masters get the published
    /// algorithm and nothing else; all these clients exclude each other. With them a master needs Redis 6.2, and its user the right to
    /// `ZADD`, or it does not count. Without them a master needs RESP3 and `CLIENT TRACKING` (Redis
    /// 6.0), by which it reports that its data is gone, or it does not count unless the quarantine
    /// is [off](Self::quarantine).
    pub fn fencing(mut self, fencing: bool) -> Self {
        self.is_plain = !fencing;
        self
    }

    /// Whether processes that wait for a lock stand in one queue and get it in the order in which
    /// they asked. Default: yes. The queue is at one master, and decides only *when* a process
    /// asks, never who holds: losing it costs time. It needs Redis 6.0 with RESP3 and scripts
    /// there, and the right to publish and subscribe; without them, and with `false`, waiters are
    /// woken by changes of the key and get the lock in no order.
    ///
    /// Give `false` where this library shares keys with clients that have no queue, such as other
    /// Redlock clients, if those must not wait long: beside a
    /// queue that is never empty they hardly ever get the lock.
    pub fn queue(mut self, queue: bool) -> Self {
        self.is_unqueued = !queue;
        self
    }

    /// Whether a lock that is released passes to the next caller of this handle that waits for the
    /// same resource, with no request to any master. Default: yes. The next caller has a guard, a
    /// deadline and a fencing token of its own; the masters see one lock.
    ///
    /// A lock is handed on where the next caller asked for the same TTL and label, has at least half
    /// of its TTL left, and finds as many copies as it wants: 31 times at most, and for 100 ms
    /// behind its grant, so that other processes are served. It is released on the masters where its
    /// [`Guard::token`](crate::Guard::token) was read, or where it came from
    /// [`Redlock::resume`](crate::Redlock::resume). [`Guard::release`](crate::Guard::release) of a
    /// lock that is handed on asks no master, and ends at once.
    ///
    /// Give `false` where each lock must be a key of its own on the masters, such as for an audit by
    /// their tokens.
    pub fn hand_over(mut self, hand_over: bool) -> Self {
        self.hands_nothing_on = !hand_over;
        self
    }

    /// How long [`Redlock::lock`](crate::Redlock::lock) keeps trying. Default: 10 s. Zero is one
    /// attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How long each master has for its answer: at most a quarter of the TTL. Default: 50 ms or a
    /// tenth of the TTL, whichever is shorter. It is never waited for when a quorum has answered;
    /// raise it where masters are far away.
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.origins.remove(NODE_TIMEOUT.name());
        self.node_timeout = Some(node_timeout);
        self
    }

    /// How long a connection may take to be set up. Default: 1 s. The first use waits for it, at
    /// most, for masters that have never been reached yet; and as long again, at most, where fewer
    /// than a quorum vote and something is done about it, whatever the wait of the request. A
    /// connection that leaves a request unanswered for this time, or for the node timeout if that
    /// is longer, is replaced.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = Some(connect_timeout);
        self
    }

    /// Added to the expiry that masters get, and to nothing else. Default: a tenth of the
    /// TTL. It covers corrections of a master's wall clock up to its own length, and is the price
    /// in waiting after a holder has crashed.
    pub fn clock_guard(mut self, guard: Duration) -> Self {
        self.clock_guard = Some(guard);
        self
    }

    /// Sets a name that is added to every token, so that people see who holds a lock: 1 to 64 of
    /// `A-Z a-z 0-9 . _ @ : -`. It proves nothing: no client trusts it.
    ///
    /// Default: `user@host:pid`, the name that the `redlock` command also uses. If all
    /// masters are [no servers](Self::masters) there is no default label, so that the
    /// traffic of a simulation does not depend on the machine that runs it.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.origins.remove(LABEL.name());
        self.label = GivenLabel::Text(label.into());
        self
    }

    /// Adds no name to the tokens, for instance because clients of other teams share the masters
    /// and must not see host names.
    pub fn no_label(mut self) -> Self {
        self.origins.remove(LABEL.name());
        self.label = GivenLabel::None;
        self
    }

    /// Certificates and keys for `rediss://` masters. Default: what the operating system trusts,
    /// and no certificate of our own.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.origins.remove(TLS_CA.name());
        self.origins.remove(TLS_CERT.name());
        self.tls = tls;
        self
    }

    /// Certificates and keys from files, each with what named it.
    #[doc(hidden)]
    pub fn pem(self, pem: &Pem) -> Self {
        let mut builder = self.tls(pem.tls());
        let (ca, identity) = pem.origins.clone();
        let origins = &mut builder.origins;
        ca.into_iter().for_each(|ca| origins.set(TLS_CA.name(), ca));
        identity.into_iter().for_each(|identity| origins.set(TLS_CERT.name(), identity));
        builder
    }

    /// The source of the value of this variable, for the error that refuses it.
    #[doc(hidden)]
    pub fn given_by<T>(mut self, variable: &Variable<T>, origin: impl Into<String>) -> Self {
        self.origins.set(variable.name(), origin.into());
        self
    }

    /// Draws the random pauses between attempts from this seed, so that a simulation with it
    /// repeats itself. Default: another seed for every handle. Tokens never follow from it; the
    /// place in the queues of waiters does, so give each handle another one.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Checks everything and makes the handle that its faces share.
    ///
    /// # Errors
    /// [`BuildError`] with the limit that was passed and what to do.
    pub(crate) fn handle(self) -> Result<Handle, BuildError> {
        let settings = self.settings().map_err(|error| self.origins.trace(error))?;
        let clock = self.clock.clone().unwrap_or_else(Clock::system);
        let nodes = self.nodes_of(&clock, &settings)?;
        let seed = self.seed.unwrap_or_else(rand::random);
        let names: Arc<[Arc<str>]> = nodes.iter().map(|node| node.name().into()).collect();
        let counters = Counters::new(names.clone());
        let setup = Setup {
            clock: clock.clone(),
            nodes,
            settings: settings.clone(),
            seed,
            counters: counters.clone(),
        };
        Ok(Handle::new(settings, clock, names, counters, Slot::new(setup)))
    }

    fn settings(&self) -> Result<Settings, BuildError> {
        let settings = Settings {
            prefix: self.checked_prefix()?,
            ttl: self.ttl,
            max_ttl: self.max_ttl,
            quarantine: self.quarantine,
            fencing: !self.is_plain,
            queue: !self.is_unqueued,
            hand_over: !self.hands_nothing_on,
            wait: self.wait.unwrap_or(Duration::from_secs(10)),
            node_timeout: self.node_timeout,
            clock_guard: self.clock_guard,
            label: self.checked_label().map_err(InvalidRequest::from)?,
            connect_timeout: self.connect_timeout.unwrap_or(Self::CONNECT_TIMEOUT),
        };
        let (max_ttl, connect_timeout) = (settings.max_ttl(), settings.connect_timeout);
        if !(Ttl::MIN..=MAX_TTL_MAX).contains(&max_ttl) {
            return Err(BuildError::MaxTtl { max_ttl });
        }
        if connect_timeout.is_zero() {
            return Err(BuildError::ZeroTimeout { name: "connect timeout" });
        }
        if settings.node_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(BuildError::ZeroTimeout { name: "node timeout" });
        }
        if let Some(guard) = settings.clock_guard.filter(|guard| *guard > max_ttl) {
            return Err(BuildError::ClockGuard { guard, max_ttl });
        }
        settings.timing(None, settings.unread_max_ttl())?;
        Ok(settings)
    }

    fn checked_prefix(&self) -> Result<Arc<[u8]>, BuildError> {
        if Resource::is_reserved(&self.prefix) || self.prefix.len() > Resource::LEN_MAX {
            let prefix = self.prefix.escape_ascii().to_string();
            return Err(BuildError::Prefix { prefix });
        }
        Ok(self.prefix.as_slice().into())
    }

    fn checked_label(&self) -> Result<Option<Label>, InvalidLabel> {
        self.label.check(|| if self.urls.is_empty() { None } else { label::of_process() })
    }

    fn nodes_of(
        &self,
        clock: &Clock,
        settings: &Settings,
    ) -> Result<Arc<[Arc<dyn Node>]>, BuildError> {
        let mut setup = RedisSetup::new(clock.clone(), settings.connect_timeout);
        setup.stall_timeout = settings.stall_timeout();
        setup.tls = self.tls.clone();
        // Without quarantine the record is read all the same: it shows whether others have one.
        setup.namespace = Some(settings.prefix.clone());
        setup.quarantine = settings.quarantine == Quarantine::On;
        setup.fenced = settings.fencing;
        // The published algorithm has no queue, and nothing is tried for one.
        setup.queues = settings.queue || settings.fencing;
        self.check_count()?;
        let mut nodes: Vec<Arc<dyn Node>> = Vec::with_capacity(MASTERS_MAX);
        let mut names = HashSet::new();
        for Url { url, origin } in &self.urls {
            let node = RedisNode::new(url, &setup).map_err(|error| self.bad_node(error, origin))?;
            if !names.insert(node.name().to_owned()) {
                return Err(given_by(origin, same_node(&node)));
            }
            nodes.push(Arc::new(node));
        }
        if let Some(twin) = self.masters.iter().find(|node| !names.insert(node.name().to_owned())) {
            return Err(same_node(&**twin));
        }
        nodes.extend(self.masters.iter().cloned());
        Ok(nodes.into())
    }

    fn check_count(&self) -> Result<(), BuildError> {
        match self.urls.len() + self.masters.len() {
            0 => Err(BuildError::NoMasters),
            1..=MASTERS_MAX => Ok(()),
            masters => {
                let origin = self.urls.last().and_then(|url| url.origin.clone());
                Err(given_by(&origin, BuildError::TooManyMasters { masters }))
            }
        }
    }

    fn bad_node(&self, error: InvalidNode, origin: &Option<String>) -> BuildError {
        match error {
            InvalidNode::Url(_) => given_by(origin, error.into()),
            error => self.origins.trace(error.into()),
        }
    }
}

fn same_node(node: &dyn Node) -> BuildError {
    BuildError::SameNode { node: node.name().to_owned() }
}

/// Passwords stand in URLs, so these are counted and not shown.
impl std::fmt::Debug for RedlockBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedlockBuilder")
            .field("nodes", &(self.urls.len() + self.masters.len()))
            .field("ttl", &self.ttl)
            .field("max_ttl", &self.max_ttl)
            .finish_non_exhaustive()
    }
}
