//! `Environment`: the variables that a command gets from `redlock run`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use redlock_quorum::Guard;
use redlock_quorum::environment::{self as variables, TOKEN, is_pipe};

use crate::args::Run;
use crate::global::{self, Global};
use crate::held::{Entry, Held};

/// The changes to the environment of `redlock run` itself.
#[derive(Debug)]
pub(crate) struct Environment {
    set: Vec<(&'static str, OsString)>,
    removed: Vec<&'static str>,
}

impl Environment {
    /// Describes the lock, and the masters only if `--pass-nodes` is used. With several locks, each
    /// variable has one line per lock, in the order of the arguments.
    pub(crate) fn new(
        global: &Global,
        args: &Run,
        held: &Held,
        slot: Option<u32>,
        guards: &[Guard],
    ) -> Self {
        let fence = |guard: &Guard| guard.fencing_token().map(|fence| fence.get());
        let tokens: Vec<&str> = guards.iter().map(|guard| guard.token().as_str()).collect();
        let fences = guards.iter().map(|guard| Some(fence(guard)?.to_string()));
        let fences = fences.collect::<Option<Vec<_>>>();
        let mut this = Self::of_locks(global, args, &tokens, fences);
        match (slot, guards) {
            (Some(slot), [permit]) => {
                let name = OsStr::from_bytes(permit.resource().as_bytes());
                this.set.push((KEY, name.to_owned()));
                this.set.push((SLOT, slot.to_string().into()));
            }
            // An enclosing command may have left its own, which is of another name.
            _ => this.removed.push(SLOT),
        }
        let add = |held: Held, guard: &Guard| {
            held.and(guard.resource().as_bytes(), guard.token().as_str(), fence(guard))
        };
        this.set.extend(guards.iter().fold(held.clone(), add).variables());
        this
    }

    /// The same for a command that enters a lock around it: those around it stay as they are.
    pub(crate) fn entered(global: &Global, args: &Run, entry: &Entry) -> Self {
        let fences = entry.fencing_token.map(|fence| vec![fence.to_string()]);
        Self::of_locks(global, args, &[&entry.token], fences)
    }

    fn of_locks(global: &Global, args: &Run, tokens: &[&str], fences: Option<Vec<String>>) -> Self {
        let mut set = vec![(KEY, args.keys.join(OsStr::new("\n")))];
        set.push((TOKEN, tokens.join("\n").into()));
        let mut removed = Vec::new();
        match fences {
            Some(fences) => set.push((FENCING_TOKEN, fences.join("\n").into())),
            // A lock around this one may have left its own, which is for another resource.
            None => removed.push(FENCING_TOKEN),
        }
        if args.pass_nodes {
            set.extend(masters(global));
        } else {
            removed.extend(access());
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

/// Returns the options as variables with the same meaning. A command cannot read a pipe again that
/// this process has read, so it gets the contents.
fn masters(global: &Global) -> impl Iterator<Item = (&'static str, OsString)> {
    let config = global::variable(variables::CONFIG).filter(|file| is_pipe(Path::new(file)));
    let list = global.named.file.as_deref().is_some_and(is_pipe);
    let nodes = (!global.nodes.is_empty() || config.is_some() || list).then(|| urls(global));
    let nodes = nodes.map(|urls| (variables::NODES, urls));
    let config = config.map(|_| (variables::CONFIG, "/dev/null".into()));
    let values = global.values().into_iter();
    let values = values.filter_map(|(name, value)| Some((name, value?)));
    nodes.into_iter().chain(config).chain(values)
}

/// Returns the masters as one list. A comma in a URL would separate two of them.
fn urls(global: &Global) -> OsString {
    let urls = global.named.masters.iter().map(|master| master.url.replace(',', "%2C"));
    urls.collect::<Vec<_>>().join(",").into()
}

/// Returns the variables that contain the addresses and credentials of masters. A command must not
/// inherit them.
fn access() -> impl Iterator<Item = &'static str> {
    variables::SETTINGS.iter().filter(|setting| setting.is_access).map(|setting| setting.name)
}

const KEY: &str = "REDLOCK_KEY";
const FENCING_TOKEN: &str = "REDLOCK_FENCING_TOKEN";
const SLOT: &str = "REDLOCK_SLOT";
