//! `Environment`: the variables that a command gets from `redlock run`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;

use redlock_quorum::Guard;

use crate::args::Run;
use crate::global::{Global, variable};
use crate::held::Held;

/// What is different from the environment of `redlock run` itself.
#[derive(Debug)]
pub(crate) struct Environment {
    set: Vec<(&'static str, OsString)>,
    removed: Vec<&'static str>,
}

impl Environment {
    /// The lock, and no way to the masters unless that was asked for.
    pub(crate) fn new(global: &Global, args: &Run, held: &Held, guard: &Guard) -> Self {
        let token = guard.token().as_str();
        let held = held.clone().and(args.key.as_bytes(), token);
        let mut set = vec![(KEY, args.key.clone()), (TOKEN, token.into())];
        set.push((Held::NAME, held.variable()));
        let mut removed = Vec::new();
        match guard.fencing_token() {
            Some(fence) => set.push((FENCING_TOKEN, fence.to_string().into())),
            // A lock around this one may have left its own, which is for another resource.
            None => removed.push(FENCING_TOKEN),
        }
        if args.pass_nodes {
            set.extend(masters(global));
        } else {
            removed.extend(SECRETS);
        }
        Self { set, removed }
    }

    pub(crate) fn apply_to(&self, command: &mut Command) {
        for name in &self.removed {
            command.env_remove(name);
        }
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
    }
}

/// Whether this process was started by `redlock run`, which removes the masters.
pub(crate) fn is_of_a_command() -> bool {
    variable(TOKEN).is_some()
}

/// What was given as options, as the variables of the same meaning.
fn masters(global: &Global) -> impl Iterator<Item = (&'static str, OsString)> {
    // In an URL, and in a variable that lists URLs, a comma means two things.
    let nodes: Vec<_> = global.nodes.iter().map(|url| url.replace(',', "%2C")).collect();
    let path = |path: &Option<std::path::PathBuf>| path.clone().map(OsString::from);
    let duration =
        |time: Option<Duration>| time.map(|time| format!("{}ms", time.as_millis()).into());
    let given = [
        ("REDLOCK_NODES", (!nodes.is_empty()).then(|| nodes.join(",").into())),
        ("REDLOCK_NODE_TIMEOUT", duration(global.node_timeout)),
        ("REDLOCK_PREFIX", global.prefix.clone()),
        ("REDLOCK_MAX_TTL", duration(global.max_ttl)),
        ("REDLOCK_QUARANTINE", global.quarantine.map(|switch| switch.as_str().into())),
        ("REDLOCK_PLAIN", global.plain.then(|| "1".into())),
        ("REDLOCK_LABEL", global.label.clone()),
        ("REDLOCK_TLS_CA", path(&global.tls_ca)),
        ("REDLOCK_TLS_CERT", path(&global.tls_cert)),
        ("REDLOCK_TLS_KEY", path(&global.tls_key)),
    ];
    given.into_iter().filter_map(|(name, value)| Some((name, value?)))
}

const KEY: &str = "REDLOCK_KEY";
const TOKEN: &str = "REDLOCK_TOKEN";
const FENCING_TOKEN: &str = "REDLOCK_FENCING_TOKEN";

/// What a command must not inherit: where the masters are, and how to log in to them.
const SECRETS: [&str; 5] = [
    "REDLOCK_NODES",
    "REDLOCK_NODES_FILE",
    "REDLOCK_TLS_CA",
    "REDLOCK_TLS_CERT",
    "REDLOCK_TLS_KEY",
];
