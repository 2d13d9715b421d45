//! The settings of a command, each with what gave its value.

use std::ffi::OsString;
use std::time::Duration;

use redlock_quorum::environment::{self as variables, DEFAULT_FILE, SETTINGS, Source, redacted};
use redlock_quorum::{RedlockBuilder, printable};
use serde::Serialize;

use crate::duration::spelled;
use crate::global::{Global, variable};
use crate::session::DEFAULT_TTL;

#[derive(Debug, Serialize)]
pub(super) struct Setting {
    name: &'static str,
    /// None if it is not set and has no default.
    value: Option<String>,
    source: &'static str,
    /// The line of the configuration file.
    #[serde(skip)]
    place: Option<String>,
}

/// All settings, in the order of the table.
pub(super) fn settings(global: &Global) -> Vec<Setting> {
    SETTINGS.iter().map(|setting| Setting::of(setting.name, global)).collect()
}

impl Setting {
    fn of(name: &'static str, global: &Global) -> Self {
        let given = given(name, global);
        let source = given.as_ref().map(|(_, source)| source.clone()).unwrap_or_default();
        let value = given.map(|(value, _)| shown(name, &value.to_string_lossy()));
        let place = match &source {
            Source::File(place) => Some(place.clone()),
            _ => None,
        };
        Self { name, value: value.or_else(|| default(name)), source: source.word(), place }
    }

    /// Returns the setting as one line of text.
    pub(super) fn people(&self) -> String {
        let value = match self.value.as_deref() {
            None => "not set",
            Some("") => "none",
            Some(value) => value,
        };
        let source = self.place.as_deref().unwrap_or(self.source);
        format!("  {:21}  {value}  ({source})", self.name)
    }
}

/// A password may be in the place of any setting. The URLs are redacted, and a user has no `:`.
fn shown(name: &str, value: &str) -> String {
    match name {
        variables::NODES => printable::visible(value).into_owned(),
        _ if name == variables::USERNAME.name() && value.contains(':') => "***".into(),
        _ => printable::setting(value).into_owned(),
    }
}

fn given(name: &str, global: &Global) -> Option<(OsString, Source)> {
    let named = &global.named;
    match name {
        variables::CONFIG => variable(name).map(|file| (file, Source::Environment)),
        variables::NODES => {
            let urls: Vec<_> = named.masters.iter().map(|master| redacted(&master.url)).collect();
            Some((urls.join(",").into(), named.source.clone()))
        }
        variables::NODES_FILE => named.file.clone().map(|file| (file.into(), named.source.clone())),
        _ if name == variables::MAX_TTL.name() => duration(global.max_ttl, name, global),
        _ if name == variables::NODE_TIMEOUT.name() => duration(global.node_timeout, name, global),
        _ => {
            let mut values = global.values().into_iter();
            let value = values.find(|(known, _)| *known == name).and_then(|(_, value)| value)?;
            Some((value, global.source_of(name).clone()))
        }
    }
}

/// Returns a duration in the form in which users write it.
fn duration(given: Option<Duration>, name: &str, global: &Global) -> Option<(OsString, Source)> {
    Some((spelled(given?).into(), global.source_of(name).clone()))
}

fn default(name: &str) -> Option<String> {
    let is = |variable: &str| variable == name;
    Some(match name {
        variables::CONFIG => DEFAULT_FILE.into(),
        _ if is(variables::PREFIX.name()) => String::new(),
        _ if is(variables::MAX_TTL.name()) => spelled(RedlockBuilder::MAX_TTL),
        _ if is(variables::NODE_TIMEOUT.name()) => {
            spelled(RedlockBuilder::node_timeout_of(DEFAULT_TTL))
        }
        _ if is(variables::QUARANTINE.name()) => "on".into(),
        _ if is(variables::PLAIN.name()) => "0".into(),
        _ if is(variables::QUEUE.name()) => "on".into(),
        _ if is(variables::LABEL.name()) => "user@host:pid".into(),
        _ => return None,
    })
}
