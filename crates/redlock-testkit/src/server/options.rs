//! How servers are started.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

use super::admit::Namespace;

/// Options of servers. By default, a server stores nothing on disk, and votes immediately for
/// clients without a prefix.
///
/// Servers always listen only on 127.0.0.1.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    pub(super) arguments: Vec<String>,
    pub(super) variables: Vec<(String, OsString)>,
    pub(super) password: Option<String>,
    pub(super) first_port: Option<u16>,
    pub(super) directory: Option<PathBuf>,
    pub(super) is_brand_new: bool,
    prefix: Vec<u8>,
    max_ttl: Option<Duration>,
    binary: Option<PathBuf>,
}

impl ServerOptions {
    /// Creates the defaults: free ports, no password, nothing saved, the binary found on `PATH`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds words to the command line, such as `["--appendonly", "yes"]`.
    ///
    /// They come last, so they override the kit's own options. Set a password with
    /// [`password`](Self::password), because otherwise the kit cannot query the process id of the
    /// server.
    #[must_use]
    pub fn arguments<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.arguments.extend(words.map(String::from));
        self
    }

    /// Sets a variable in the environment of the servers.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Sets the password of the default user, which becomes part of the URLs.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Uses this port for the first server and the ones above it for the others.
    ///
    /// The default is a free port between 20000 and 32000 for each.
    #[must_use]
    pub fn first_port(mut self, port: u16) -> Self {
        self.first_port = Some(port);
        self
    }

    /// Makes the servers' own directories in this one.
    ///
    /// The default is the system's directory for temporary files, which often is memory: a test
    /// that measures fsync wants a disk.
    #[must_use]
    pub fn directory(mut self, parent: impl Into<PathBuf>) -> Self {
        self.directory = Some(parent.into());
        self
    }

    /// Admits the servers for clients with this prefix. The default is none.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<Vec<u8>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Admits the servers with this `max_ttl`. Defaults to 60 s, as in a handle. No lock can last
    /// longer without an extension, and a restarted server does not vote for 1.1 times this
    /// duration.
    #[must_use]
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = Some(max_ttl);
        self
    }

    /// Does not admit the servers. With clients that use a quarantine, they do not vote until
    /// `redlock init` or the end of the quarantine.
    #[must_use]
    pub fn brand_new(mut self) -> Self {
        self.is_brand_new = true;
        self
    }

    pub(super) fn namespace(&self) -> Namespace {
        let max_ttl = self.max_ttl.unwrap_or(MAX_TTL);
        Namespace { prefix: self.prefix.clone(), max_ttl, set: None }
    }

    /// Runs this binary, and ignores the environment.
    ///
    /// The default is the one named by `REDLOCK_SERVER_BIN`, else `redis-server`, else
    /// `valkey-server`, found on `PATH`. A script in its place has to `exec` the server, because
    /// the kit identifies the server by its process id.
    #[must_use]
    pub fn binary(mut self, binary: impl Into<PathBuf>) -> Self {
        self.binary = Some(binary.into());
        self
    }

    /// The options of the server at this place of a set.
    pub(super) fn at_place(mut self, place: usize) -> anyhow::Result<Self> {
        if let Some(first) = self.first_port {
            let port = u16::try_from(place).ok().and_then(|place| first.checked_add(place));
            let port = port.with_context(|| {
                format!("port {first} + {place} is above 65535: choose a lower first port")
            })?;
            self.first_port = Some(port);
        }
        Ok(self)
    }

    /// The server binary these options lead to.
    pub(super) fn find_binary(&self) -> anyhow::Result<PathBuf> {
        let from_environment = || env::var_os(BINARY_VARIABLE).filter(|name| !name.is_empty());
        let named = self.binary.clone().or_else(|| from_environment().map(PathBuf::from));
        if let Some(named) = named {
            return on_path(named.as_os_str()).with_context(|| {
                format!("there is no server binary {} (see {BINARY_VARIABLE})", named.display())
            });
        }
        match DEFAULT_BINARIES.iter().find_map(|name| on_path(OsStr::new(name))) {
            Some(binary) => Ok(binary),
            None => bail!(
                "no {} on PATH: install one (`apt-get install redis-server`), or name a binary in \
                 {BINARY_VARIABLE}",
                DEFAULT_BINARIES.join(" and no ")
            ),
        }
    }
}

/// Returns the file for a name: the name itself if it has a folder, otherwise the first match on
/// `PATH`.
pub(super) fn on_path(name: &OsStr) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return Some(PathBuf::from(name)).filter(|file| file.is_file());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

const MAX_TTL: Duration = Duration::from_secs(60);
const BINARY_VARIABLE: &str = "REDLOCK_SERVER_BIN";
const DEFAULT_BINARIES: [&str; 2] = ["redis-server", "valkey-server"];
