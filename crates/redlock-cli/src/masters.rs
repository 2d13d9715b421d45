//! `Masters`: where the masters are and how to reach them, each with the place it was named in.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use redlock_quorum::{BuildError, InvalidNode, InvalidRequest, Redlock, RedlockBuilder, Tls};

use crate::environment;
use crate::exit::Failure;
use crate::global::{Global, variable};
use crate::wording;

/// The masters of one command.
pub(crate) struct Masters {
    nodes: Vec<Master>,
    pem: Pem,
}

/// One master, and what named it: an option, a variable, or a line of a file.
struct Master {
    url: String,
    origin: String,
}

/// Certificates and keys, as they stand in their files.
#[derive(Clone, Default)]
pub(crate) struct Pem {
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Masters {
    /// Reads what was given; it is checked when a handle is built of it.
    pub(crate) fn new(global: &Global) -> Result<Self, Failure> {
        Ok(Self { nodes: nodes(global)?, pem: Pem::read(global)? })
    }

    /// A builder that knows the masters.
    pub(crate) fn builder(&self) -> RedlockBuilder {
        Redlock::builder().nodes(self.urls()).tls(self.pem.tls())
    }

    pub(crate) fn urls(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.url.as_str())
    }

    pub(crate) fn pem(&self) -> &Pem {
        &self.pem
    }

    /// Why a handle cannot be built, with what the value came from.
    pub(crate) fn refused(&self, global: &Global, error: BuildError) -> Failure {
        let origin = match &error {
            BuildError::Node(InvalidNode::Tls(_)) => Some(self.bad_tls(global)),
            BuildError::Node(_) => self.bad_url(),
            BuildError::MaxTtl { .. } | BuildError::Default(InvalidRequest::Ttl(_)) => {
                global.variable_of("--max-ttl")
            }
            BuildError::ZeroTimeout { .. }
            | BuildError::Default(InvalidRequest::NodeTimeout { .. }) => {
                global.variable_of("--node-timeout")
            }
            BuildError::Prefix { .. } => global.variable_of("--prefix"),
            _ => None,
        };
        match origin {
            Some(origin) => Failure::usage(anyhow!(wording::build(&error)).context(origin)),
            None => error.into(),
        }
    }

    /// Where the first URL stands that is no master by itself.
    fn bad_url(&self) -> Option<String> {
        let is_bad = |node: &&Master| {
            let alone = Redlock::builder().nodes([&node.url]).tls(self.pem.tls()).build();
            matches!(alone, Err(BuildError::Node(InvalidNode::Url(_))))
        };
        self.nodes.iter().find(is_bad).map(|node| node.origin.clone())
    }

    /// Which file is of no use: the CA's, if it is of none by itself, else the identity's.
    fn bad_tls(&self, global: &Global) -> String {
        let only_ca = Pem { ca: self.pem.ca.clone(), identity: None };
        if Redlock::builder().nodes(self.urls()).tls(only_ca.tls()).build().is_err() {
            return ca(global);
        }
        let cert = named(global, "--tls-cert", global.tls_cert.as_deref());
        format!("{cert}, {}", named(global, "--tls-key", global.tls_key.as_deref()))
    }
}

impl Pem {
    fn read(global: &Global) -> Result<Self, Failure> {
        let ca = global.tls_ca.as_deref();
        let ca = ca.map(|file| read(&global.origin("--tls-ca"), file)).transpose()?;
        let identity = match (&global.tls_cert, &global.tls_key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((
                read(&global.origin("--tls-cert"), cert)?,
                read(&global.origin("--tls-key"), key)?,
            )),
            (Some(_), None) => return Err(alone(&global.origin("--tls-cert"), "--tls-key")),
            (None, Some(_)) => return Err(alone(&global.origin("--tls-key"), "--tls-cert")),
        };
        Ok(Self { ca, identity })
    }

    pub(crate) fn tls(&self) -> Tls {
        let mut tls = Tls::new();
        if let Some(ca) = &self.ca {
            tls = tls.ca(ca.as_slice());
        }
        match &self.identity {
            Some((cert, key)) => tls.identity(cert.as_slice(), key.as_slice()),
            None => tls,
        }
    }
}

/// Whom we trust, in words: the option with its file, or the system.
pub(crate) fn ca(global: &Global) -> String {
    match global.tls_ca.as_deref() {
        None => "the system's CA certificates, as no --tls-ca was given".into(),
        file => named(global, "--tls-ca", file),
    }
}

fn named(global: &Global, option: &'static str, file: Option<&Path>) -> String {
    let origin = global.origin(option);
    file.map_or_else(|| origin.clone(), |file| format!("{origin} {}", file.display()))
}

fn alone(given: &str, missing: &str) -> Failure {
    Failure::usage(anyhow!("{given} is given without {missing}: they go together"))
}

/// The masters: of the command line, else of the environment, else of the file.
fn nodes(global: &Global) -> Result<Vec<Master>, Failure> {
    let nodes: Vec<_> = if !global.nodes.is_empty() {
        let given = global.nodes.iter();
        given.map(|url| Master { url: url.clone(), origin: "--node".into() }).collect()
    } else if let Some(list) = variable("REDLOCK_NODES") {
        urls(&list.to_string_lossy(), |_| "REDLOCK_NODES".into())
    } else if let Some(file) = variable("REDLOCK_NODES_FILE") {
        let text = read("REDLOCK_NODES_FILE", Path::new(&file))?;
        let place = |line| format!("line {line} of {}", Path::new(&file).display());
        let found = urls(&String::from_utf8_lossy(&text), place);
        if found.is_empty() {
            let file = Path::new(&file).display();
            return Err(Failure::usage(anyhow!(
                "REDLOCK_NODES_FILE: {file} names no masters: write one URL on each line"
            )));
        }
        found
    } else {
        Vec::new()
    };
    if nodes.is_empty() { Err(none_named()) } else { Ok(nodes) }
}

fn none_named() -> Failure {
    let advice = if environment::is_of_a_command() {
        "`redlock run` removes REDLOCK_NODES and REDLOCK_NODES_FILE from the environment of its \
         command; give `redlock run --pass-nodes` to keep them"
    } else {
        "give --node URL for each, set REDLOCK_NODES or REDLOCK_NODES_FILE; `redlock dev` starts \
         some to play with"
    };
    Failure::usage(anyhow!("no masters were named: {advice}"))
}

/// URLs separated by commas or on lines of their own; `#` at the start of a line is a comment.
fn urls(text: &str, origin: impl Fn(usize) -> String) -> Vec<Master> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.starts_with('#'));
    let urls = lines.flat_map(|(number, line)| line.split(',').map(move |url| (number, url)));
    let urls = urls.map(|(number, url)| (number, url.trim())).filter(|(_, url)| !url.is_empty());
    urls.map(|(number, url)| Master { url: url.to_owned(), origin: origin(number) }).collect()
}

fn read(origin: &str, file: &Path) -> Result<Vec<u8>, Failure> {
    let text = fs::read(file).with_context(|| format!("{origin}: reading {}", file.display()));
    text.map_err(Failure::usage)
}

/// The prefix of all keys, as bytes.
pub(crate) fn prefix(global: &Global) -> &[u8] {
    global.prefix.as_deref().map_or(&[], |prefix| prefix.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_listed_by_commas_or_lines_and_known_by_their_place() {
        let text = "# ours\nredis://a\n\n  redis://b , redis://c,\n#redis://d\n";
        let masters = urls(text, |line| format!("line {line}"));
        let found: Vec<_> = masters.iter().map(|m| (m.url.as_str(), m.origin.as_str())).collect();
        let expected = [("redis://a", "line 2"), ("redis://b", "line 4"), ("redis://c", "line 4")];
        assert_eq!(found, expected);
    }
}
