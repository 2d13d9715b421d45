//! `Masters`: the addresses of the masters and how to reach them, each with its source.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use anyhow::anyhow;
use redlock_quorum::commands::Uses;
use redlock_quorum::environment::{
    self, Conversation, Environment, Master, PasswordFile, Pem, PemFile, PemFiles, Source,
};
use redlock_quorum::{BuildError, Cause, Quarantine, Redlock, RedlockBuilder};

use crate::exit::Failure;
use crate::global::Global;

/// The masters of one command.
pub(crate) struct Masters {
    nodes: Vec<Master>,
    pem: Pem,
    password: Option<PasswordFile>,
}

impl Masters {
    /// Reads the settings. Building a handle checks them.
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        let (nodes, pem) = (nodes(global)?, pem_files(global).read()?);
        Ok(Self { nodes, pem, password: password_file(global)? })
    }

    /// A builder that knows the masters.
    pub(crate) fn builder(&self) -> RedlockBuilder {
        Redlock::builder()
            .named(self.nodes.clone())
            .pem(&self.pem)
            .password_file(self.password.as_ref())
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn urls(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.url.as_str())
    }

    /// Connects to the master at `url`, with the certificates and the credentials of the library.
    pub(crate) async fn open(&self, url: &str, limit: Duration) -> Result<Conversation, Cause> {
        let credentials = self.password.as_ref().map(PasswordFile::provider);
        Conversation::open(url, &self.pem.tls(), credentials.as_ref(), limit).await
    }
}

/// Returns the builder with the variables that its values came from. For options, the error itself
/// names the option.
pub(crate) fn traced(mut builder: RedlockBuilder, global: &Global) -> RedlockBuilder {
    if *global.source(&environment::PREFIX) != Source::Option {
        builder = builder.given_by(&environment::PREFIX, global.origin(&environment::PREFIX));
    }
    for variable in [environment::MAX_TTL, environment::NODE_TIMEOUT] {
        if *global.source(&variable) != Source::Option {
            builder = builder.given_by(&variable, global.origin(&variable));
        }
    }
    builder
}

fn pem_files(global: &Global) -> PemFiles {
    let file = |path: &Option<_>, variable| {
        let origin = global.origin(variable);
        path.clone().map(|path| PemFile { path, origin })
    };
    PemFiles {
        ca: file(&global.tls_ca, &environment::TLS_CA),
        cert: file(&global.tls_cert, &environment::TLS_CERT),
        key: file(&global.tls_key, &environment::TLS_KEY),
    }
}

fn password_file(global: &Global) -> Result<Option<PasswordFile>, BuildError> {
    let user = global.username.clone();
    let user = user.map(|user| (user, global.origin(&environment::USERNAME)));
    let file = global.password_file.clone();
    PasswordFile::new(user, file.map(|file| (file, global.origin(&environment::PASSWORD_FILE))))
}

/// Whom we trust, in words: the option with its file, or the system.
pub(crate) fn ca(global: &Global) -> String {
    let system = || "the CA certificates of this system; use --tls-ca FILE for others".into();
    let file = |file: &PemFile| {
        format!(
            "the CA certificates of {}; check that they signed the masters' certificates",
            file.named()
        )
    };
    pem_files(global).ca.as_ref().map_or_else(system, file)
}

/// Returns the certificate of this client in words.
pub(crate) fn certificate(global: &Global) -> String {
    let file = |file: &PemFile| format!("the certificate of {}", file.named());
    let none = || "no certificate; set one with --tls-cert and --tls-key".into();
    pem_files(global).cert.as_ref().map_or_else(none, file)
}

fn nodes(global: &Global) -> Result<Vec<Master>, Failure> {
    match global.named.masters.clone() {
        nodes if nodes.is_empty() => Err(none_named(Environment::of_process().is_below_run())),
        nodes => Ok(nodes),
    }
}

fn none_named(below_run: bool) -> Failure {
    if below_run {
        return BuildError::NoneNamed { below_run }.into();
    }
    Failure::usage(anyhow!(
        "no masters configured: set REDLOCK_NODES or REDLOCK_NODES_FILE in the environment or in \
            {}, or pass --node URL for each; `redlock dev` starts local ones",
        environment::DEFAULT_FILE
    ))
}

/// The prefix of all keys, as bytes.
pub(crate) fn prefix(global: &Global) -> &[u8] {
    global.prefix.as_deref().map_or(&[], |prefix| prefix.as_bytes())
}

/// The features that clients with these options use.
pub(crate) fn uses(global: &Global) -> Uses {
    Uses {
        quarantine: global.quarantine() == Quarantine::On,
        ballots: !global.plain,
        queues: !global.no_queue,
    }
}
