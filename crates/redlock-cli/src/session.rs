//! `Session`: the handle of one command, from its options to its last word.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs};

use anyhow::{Context, anyhow};
use redlock_quorum::{Guard, Lease, NodeVote, Owed, Redlock, Resource, Said, Tls, Votes};

use crate::args::Global;
use crate::duration::Wait;
use crate::environment;
use crate::exit::Failure;
use crate::output;
use crate::signals::Signals;

/// A handle on the masters, and what is needed to close it in good order.
pub(crate) struct Session {
    pub(crate) redlock: Redlock,
    pub(crate) key: Resource,
    pub(crate) ttl: Duration,
    node_timeout: Duration,
    is_verbose: bool,
}

impl Session {
    /// Builds the handle; connects nothing yet. Without a TTL the largest one counts: then the
    /// node timeout has the widest range, and "until when" is told with the latest bound.
    pub(crate) fn new(
        global: &Global,
        key: &OsStr,
        ttl: Option<Duration>,
    ) -> Result<Self, Failure> {
        let max_ttl = global.max_ttl.unwrap_or(MAX_TTL);
        let ttl = ttl.unwrap_or(max_ttl);
        let mut builder =
            Redlock::builder().nodes(nodes(global)?).ttl(ttl).max_ttl(max_ttl).tls(tls(global)?);
        if let Some(prefix) = &global.prefix {
            builder = builder.prefix(prefix.as_bytes());
        }
        if let Some(timeout) = global.node_timeout {
            builder = builder.node_timeout(timeout);
        }
        let node_timeout = global.node_timeout.unwrap_or_else(|| NODE_TIMEOUT.min(ttl / 10));
        let (redlock, key) = (builder.build()?, Resource::from(key.as_bytes()));
        Ok(Self { redlock, key, ttl, node_timeout, is_verbose: global.verbose })
    }

    /// The TTL of commands that take one, where none was given.
    pub(crate) fn default_ttl(global: &Global) -> Duration {
        DEFAULT_TTL.min(global.max_ttl.unwrap_or(MAX_TTL))
    }

    /// Acquires the lock, unless a signal comes first.
    pub(crate) async fn acquire(
        &self,
        wait: Wait,
        max_hold: Option<Duration>,
        signals: &mut Signals,
    ) -> Result<Guard, Failure> {
        let mut request = self.redlock.lock(&self.key).ttl(self.ttl);
        request = match wait {
            Wait::For(wait) => request.wait(wait),
            Wait::Forever => request.wait_forever(),
        };
        if let Some(max_hold) = max_hold {
            request = request.max_hold(max_hold);
        }
        // Dropping the request gives it up: whatever it has set is released.
        let guard = tokio::select! {
            biased;
            signal = signals.next() => return Err(Failure::cancelled(signal, &self.key)),
            outcome = request => outcome?,
        };
        Ok(guard)
    }

    /// Proves a lease by an extension.
    pub(crate) async fn resume(&self, token: &str) -> Result<Guard, Failure> {
        Ok(self.redlock.resume(Lease::new(&self.key, token, self.ttl)?).await?)
    }

    /// Waits until every master has answered or its node timeout has passed: a quorum is enough to
    /// hold the lock, but what goes on its way when this process ends might not arrive.
    pub(crate) async fn hear_all(&self, guard: &Guard) -> Votes {
        /// There is no event for a late vote; this is a fraction of a round trip.
        const LOOK_AGAIN: Duration = Duration::from_millis(1);
        let all_said = async {
            while guard.votes().iter().any(|vote| vote.said == Said::Pending) {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        // Whoever is still silent then is taken for timed out.
        let _ = tokio::time::timeout(self.node_timeout, all_said).await;
        guard.votes()
    }

    /// Tells, to those who asked for it, what each master said.
    pub(crate) fn tell(&self, what: &str, votes: &Votes) {
        if self.is_verbose {
            let one = |vote: &NodeVote| match (&vote.said, vote.latency) {
                (Said::Granted | Said::Held { .. } | Said::NotOurs, Some(latency)) => {
                    format!("{vote} in {latency:.1?}")
                }
                _ => vote.to_string(),
            };
            let votes: Vec<_> = votes.iter().map(one).collect();
            output::note(&format!("{} {what}: {}", self.key, votes.join(", ")));
        }
    }

    /// Waits until the masters have acknowledged what was released, for two node timeouts at most,
    /// and names those that may keep the key.
    pub(crate) async fn close(self) {
        if let Err(unreleased) = self.redlock.shutdown(self.node_timeout * 2).await {
            for owed in unreleased.owed() {
                output::note(&kept(owed, SystemTime::now()));
            }
        }
    }
}

/// Which master may keep which key, and until when.
fn kept(owed: &Owed, now: SystemTime) -> String {
    let Owed { node, resource, within, .. } = owed;
    let until = now.duration_since(UNIX_EPOCH).unwrap_or_default() + *within;
    let seconds = until.as_secs() % 86_400;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!(
        "{node} may keep the key of {resource} until {hour:02}:{minute:02}:{second:02} UTC, \
         {within:.1?} at most"
    )
}

/// The masters: of the command line, else of the environment, else of the file.
fn nodes(global: &Global) -> Result<Vec<String>, Failure> {
    if !global.nodes.is_empty() {
        return Ok(global.nodes.clone());
    }
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let nodes = if let Some(list) = set("REDLOCK_NODES") {
        urls(&list.to_string_lossy())
    } else if let Some(file) = set("REDLOCK_NODES_FILE") {
        let text = read(Path::new(&file)).map_err(Failure::usage)?;
        urls(&String::from_utf8_lossy(&text))
    } else if environment::is_of_a_command() {
        return Err(Failure::usage(anyhow!(
            "no masters were named: `redlock run` removes REDLOCK_NODES and REDLOCK_NODES_FILE \
             from the environment of its command; give `redlock run --pass-nodes` to keep them"
        )));
    } else {
        return Err(Failure::usage(anyhow!(
            "no masters were named: give --node URL for each, set REDLOCK_NODES or \
             REDLOCK_NODES_FILE; `redlock dev` starts some to play with"
        )));
    };
    Ok(nodes)
}

/// URLs separated by commas or on lines of their own; `#` at the start of a line is a comment.
fn urls(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let urls = lines.flat_map(|line| line.split(',')).map(str::trim);
    urls.filter(|url| !url.is_empty()).map(String::from).collect()
}

fn tls(global: &Global) -> Result<Tls, Failure> {
    let mut tls = Tls::new();
    if let Some(ca) = &global.tls_ca {
        tls = tls.ca(read(ca).map_err(Failure::usage)?);
    }
    match (&global.tls_cert, &global.tls_key) {
        (None, None) => Ok(tls),
        (Some(cert), Some(key)) => {
            let (cert, key) = (read(cert), read(key));
            Ok(tls.identity(cert.map_err(Failure::usage)?, key.map_err(Failure::usage)?))
        }
        _ => Err(Failure::usage(anyhow!("--tls-cert and --tls-key go together: give both"))),
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("reading {}", file.display()))
}

// The library's defaults, which are known to the builder alone.
const MAX_TTL: Duration = Duration::from_secs(60);
const NODE_TIMEOUT: Duration = Duration::from_millis(50);
const DEFAULT_TTL: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_listed_by_commas_or_lines() {
        let text = "# ours\nredis://a\n\n  redis://b , redis://c,\n#redis://d\n";
        assert_eq!(urls(text), ["redis://a", "redis://b", "redis://c"]);
    }
}
