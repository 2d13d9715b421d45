//! `RedlockBuilder`: every setting, its default, and the reason for the default.

mod check;
mod from_env;

use std::sync::Arc;
use std::time::Duration;

use redlock_core::admission::{MAX_TTL_MAX, quarantine_length};
use redlock_core::{Clock, Credentials, CredentialsProvider, Node, Tls};
use redlock_protocol::terms::{MAX_TTL, node_timeout};

use crate::counters::Counters;
use crate::driver::Setup;
use crate::driver::slot::Slot;
use crate::environment::masters::Master;
use crate::environment::origins::Origins;
use crate::environment::password::PasswordFile;
use crate::environment::pem::Pem;
use crate::environment::variables::{
    self, LABEL, NODE_TIMEOUT, PREFIX, TLS_CA, TLS_CERT, Variable,
};
use crate::handle::Handle;
use crate::settings::{BuildError, GivenLabel, Quarantine};

/// Builds a [`Redlock`](crate::Redlock). [`build`](Self::build) checks all values and rejects
/// values out of range with an error that names the limit.
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
    credentials: Option<CredentialsProvider>,
    seed: Option<u64>,
    origins: Origins,
}

/// One master's URL, and where it was set unless the program set it.
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

    /// Returns the default of [`node_timeout`](Self::node_timeout) for a lock with this TTL: 50 ms
    /// or a tenth of the TTL, whichever is shorter.
    pub fn node_timeout_of(ttl: Duration) -> Duration {
        node_timeout(ttl)
    }

    /// Returns how long a master that lost its data does not vote, if its record has this
    /// `max_ttl`.
    #[doc(hidden)]
    pub fn quarantine_of(max_ttl: Duration) -> Duration {
        // At most a day in milliseconds, so nothing is cut off.
        let millis = max_ttl.min(MAX_TTL_MAX).as_millis() as u64;
        Duration::from_millis(quarantine_length(millis))
    }

    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Sets the masters: 1 to 15 independent servers, usually five. Each URL is
    /// `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS, or
    /// `unix:///path?db=..&user=..&pass=..`. All clients that share locks must use the same
    /// masters.
    pub fn nodes<U>(mut self, urls: U) -> Self
    where
        U: IntoIterator,
        U::Item: Into<String>,
    {
        self.urls.extend(urls.into_iter().map(|url| Url { url: url.into(), origin: None }));
        self
    }

    /// Adds masters that were configured outside of the program, each with its source.
    #[doc(hidden)]
    pub fn named(mut self, masters: impl IntoIterator<Item = Master>) -> Self {
        let named = |Master { url, origin }| Url { url, origin: Some(origin) };
        self.urls.extend(masters.into_iter().map(named));
        self
    }

    /// Adds masters that are not servers, such as the simulated masters of `redlock-testkit`. They
    /// follow the masters of [`nodes`](Self::nodes). Simulated masters also need their
    /// [`clock`](Self::clock).
    pub fn masters(mut self, masters: Vec<Arc<dyn Node>>) -> Self {
        self.masters.extend(masters);
        self
    }

    /// Sets the clock for all deadlines. Defaults to [`Clock::system`]. Tests in virtual time use
    /// [`Clock::paused`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the prefix of every key. Defaults to none. Clients exclude each other only if they use
    /// the same prefix.
    pub fn prefix(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.origins.remove(PREFIX.name());
        self.prefix = prefix.into();
        self
    }

    /// Sets how long a lock lasts without being extended. Defaults to 10 s; must be between 10 ms
    /// and the masters' [`max_ttl`](Self::max_ttl), which is known only after a connection. The
    /// default survives a pause of a few seconds, and is short enough to wait for after a crash.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the largest TTL used until the masters have a record. Defaults to 60 s; must be between
    /// 10 ms and 24 h. A master that may have lost its keys does not vote for 1.1 × this value, so
    /// keep it short and let locks be extended.
    ///
    /// After that, the smallest value on the masters applies, whatever you set here. The default
    /// TTL shrinks to it. A TTL that you set and that exceeds it is rejected. `redlock init
    /// --max-ttl D` raises the value on the masters. With `--again`, which asserts that no lock is
    /// held, it can also lower the value.
    ///
    /// Set it if the masters have more than 60 s, and change both together. If all masters have
    /// come back with old records, a quarantine begun by this handle is as long as the larger of
    /// their value and this one.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.origins.remove(variables::MAX_TTL.name());
        self.max_ttl = Some(max_ttl);
        self
    }

    /// Sets whether a master that may have lost its keys is kept from voting for a while. Defaults
    /// to [`Quarantine::On`], because a master that restarts empty would grant locks that another
    /// client still holds, without any sign of it. All clients of a prefix must use the same value.
    pub fn quarantine(mut self, quarantine: Quarantine) -> Self {
        self.quarantine = quarantine;
        self
    }

    /// Sets whether locks have fencing tokens
    /// ([`Guard::fencing_token`](crate::Guard::fencing_token)). Defaults to `true`. Without fencing
    /// tokens and without the [queue](Self::queue), each lock is only the published algorithm.
    /// Clients with and without fencing tokens exclude each other.
    ///
    /// A new connection always queries what the handle must know about its master. That includes a
    /// script (`GET` and `DEL` of a missing key) that tests the right to release, because a client
    /// that cannot release must not acquire.
    ///
    /// With fencing tokens, a master needs Redis 6.2, and its user the right to `ZADD`; otherwise
    /// it does not vote. Without them, a master needs RESP3 and `CLIENT TRACKING` (Redis 6.0) to
    /// report that its data is gone; otherwise it does not vote, unless the quarantine is
    /// [off](Self::quarantine).
    pub fn fencing(mut self, fencing: bool) -> Self {
        self.is_plain = !fencing;
        self
    }

    /// Sets whether waiting processes share one queue and get the lock in order of arrival.
    /// Defaults to `true`. The queue is on one master. It decides only *when* a process requests
    /// the lock, never which client holds it, so losing the queue costs only time. It needs Redis
    /// 6.0 with RESP3 and scripts, and the right to publish and subscribe. Without those, and with
    /// `false`, waiters are woken by changes of the key and get the lock in no particular order.
    ///
    /// Disable it when sharing keys with clients that cannot queue (such as other Redlock
    /// libraries). They rarely win against a queue that is never empty.
    pub fn queue(mut self, queue: bool) -> Self {
        self.is_unqueued = !queue;
        self
    }

    /// Sets whether a released lock passes to the next caller of this handle that waits for the
    /// same resource, without a request to any master. Defaults to `true`. The next caller gets its
    /// own guard, deadline and fencing token. The masters see one lock.
    ///
    /// A lock is passed on if the next caller requested the same TTL and label, at least half of
    /// the TTL is left, and there are as many copies as the caller wants. This happens at most 31
    /// times, and only within 100 ms after the grant, so that other processes are served. The lock
    /// is released on the masters instead if its [`Guard::token`](crate::Guard::token) was read, or
    /// if it came from [`Redlock::resume`](crate::Redlock::resume).
    /// [`Guard::release`](crate::Guard::release) of a lock that is passed on queries no master and
    /// returns immediately.
    ///
    /// Disable it if each lock must be a separate key on the masters, for example for an audit by
    /// tokens.
    pub fn hand_over(mut self, hand_over: bool) -> Self {
        self.hands_nothing_on = !hand_over;
        self
    }

    /// Sets how long [`Redlock::lock`](crate::Redlock::lock) keeps trying. Defaults to 10 s. Zero
    /// means one attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets how long to wait for each master's answer. Defaults to 50 ms or a tenth of the TTL,
    /// whichever is shorter; must be at most a quarter of the TTL. The client does not wait for it
    /// once a quorum has answered. Raise it if masters are far away.
    pub fn node_timeout(mut self, node_timeout: Duration) -> Self {
        self.origins.remove(NODE_TIMEOUT.name());
        self.node_timeout = Some(node_timeout);
        self
    }

    /// Sets how long to wait for a connection. Defaults to 1 s. The first request waits at most
    /// this long for masters never reached before, and at most this long again if fewer than a
    /// quorum vote and masters are being admitted, whatever its own wait is. A connection with a
    /// request unanswered for this long (or for the node timeout, if longer) is replaced.
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = Some(connect_timeout);
        self
    }

    /// Sets extra time added to the key's expiry on the masters. Defaults to a tenth of the TTL. It
    /// absorbs corrections of a master's wall clock up to its length, and delays the next holder by
    /// as much after a crash.
    pub fn clock_guard(mut self, guard: Duration) -> Self {
        self.clock_guard = Some(guard);
        self
    }

    /// Sets a name that is added to every token, so that operators see who holds a lock: 1 to 64 of
    /// `A-Z a-z 0-9 . _ @ : -`. It proves nothing, and no client trusts it.
    ///
    /// Default: `user@host:pid`, the name that the `redlock` command also uses. If no master is a
    /// server ([`masters`](Self::masters)), there is no default label, so that the traffic of a
    /// simulation does not depend on the machine that runs it.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.origins.remove(LABEL.name());
        self.label = GivenLabel::Text(label.into());
        self
    }

    /// Adds no name to the tokens, for example because other teams share the masters and must not
    /// see host names.
    pub fn no_label(mut self) -> Self {
        self.origins.remove(LABEL.name());
        self.label = GivenLabel::None;
        self
    }

    /// Sets the credentials for each master whose URL has none. The function is called for each
    /// new connection, on a thread where it may block, so that credentials can rotate while the
    /// handle is in use. If it fails, the connection is tried again.
    ///
    /// ```
    /// # use redlock_quorum::{Credentials, Redlock};
    /// let builder = Redlock::builder().nodes(["redis://10.0.0.1"]).credentials(|| {
    ///     let password = std::fs::read_to_string("/run/secrets/redlock")?;
    ///     Ok(Credentials::new(Some("redlock".into()), password.trim_end().into()))
    /// });
    /// # drop(builder);
    /// ```
    pub fn credentials(
        mut self,
        provide: impl Fn() -> std::io::Result<Credentials> + Send + Sync + 'static,
    ) -> Self {
        self.credentials = Some(CredentialsProvider::new(provide));
        self
    }

    /// Sets the file with the password, which is read for each connection.
    #[doc(hidden)]
    pub fn password_file(mut self, file: Option<&PasswordFile>) -> Self {
        self.credentials = file.map(PasswordFile::provider);
        self
    }

    /// Sets certificates and keys for `rediss://` masters. Defaults to the certificates that the
    /// operating system trusts, without a client certificate.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.origins.remove(TLS_CA.name());
        self.origins.remove(TLS_CERT.name());
        self.tls = tls;
        self
    }

    /// Sets certificates and keys from files, each with its source.
    #[doc(hidden)]
    pub fn pem(self, pem: &Pem) -> Self {
        let mut builder = self.tls(pem.tls());
        let (ca, identity) = pem.origins.clone();
        let origins = &mut builder.origins;
        ca.into_iter().for_each(|ca| origins.set(TLS_CA.name(), ca));
        identity.into_iter().for_each(|identity| origins.set(TLS_CERT.name(), identity));
        builder
    }

    /// Sets the source of the value of this variable, for the error that rejects it.
    #[doc(hidden)]
    pub fn given_by<T>(mut self, variable: &Variable<T>, origin: impl Into<String>) -> Self {
        self.origins.set(variable.name(), origin.into());
        self
    }

    /// Seeds the retry jitter, for reproducible simulations. Defaults to a different seed per
    /// handle. Queue positions also depend on it, so use a different seed per handle. Tokens never
    /// do.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Checks all settings and creates the handle that the async and the blocking API share.
    ///
    /// # Errors
    /// Returns [`BuildError`] with the limit and the fix.
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
}

/// URLs contain passwords, so only their number is shown.
impl std::fmt::Debug for RedlockBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedlockBuilder")
            .field("nodes", &(self.urls.len() + self.masters.len()))
            .field("ttl", &self.ttl)
            .field("max_ttl", &self.max_ttl)
            .finish_non_exhaustive()
    }
}
