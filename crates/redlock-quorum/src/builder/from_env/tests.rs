use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::redlock::Redlock;
use crate::settings::Quarantine;

const MASTERS: (&str, &str) = ("REDLOCK_NODES", "redis://a,redis://b,redis://c");

/// A builder in an environment of these variables.
fn builder(variables: &[(&str, &str)]) -> Result<RedlockBuilder, BuildError> {
    let lookup = |name: &str| -> Option<OsString> {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.into())
    };
    // No file of this host.
    let environment = Environment::of(&lookup);
    match environment.get("REDLOCK_CONFIG") {
        Some(_) => environment.with_file()?.builder(),
        None => environment.builder(),
    }
}

fn built(variables: &[(&str, &str)]) -> Result<Redlock, BuildError> {
    builder(&[&[MASTERS], variables].concat())?.build()
}

fn refused(variables: &[(&str, &str)]) -> String {
    built(variables).unwrap_err().to_string()
}

/// A file that is gone with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let file = std::env::temp_dir().join(format!("redlock-{}-{name}", std::process::id()));
        std::fs::write(&file, text).unwrap();
        Self(file)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

#[test]
fn every_variable_reaches_the_handle() {
    let builder = builder(&[
        MASTERS,
        ("REDLOCK_PREFIX", "app:"),
        ("REDLOCK_MAX_TTL", "2m"),
        ("REDLOCK_NODE_TIMEOUT", "70ms"),
        ("REDLOCK_QUARANTINE", "off"),
        ("REDLOCK_PLAIN", "1"),
        ("REDLOCK_QUEUE", "off"),
        ("REDLOCK_LABEL", "web-1"),
    ]);
    let handle = builder.unwrap().handle().unwrap();
    let settings = &handle.settings;
    assert_eq!(
        handle.names.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["a:6379", "b:6379", "c:6379"]
    );
    assert_eq!(&*settings.prefix, b"app:");
    assert_eq!(settings.limits.max_ttl, Some(Duration::from_secs(120)));
    assert_eq!(settings.limits.node_timeout, Some(Duration::from_millis(70)));
    assert_eq!((settings.quarantine, settings.fencing), (Quarantine::Off, false));
    assert_eq!(settings.label.as_ref().map(|label| label.as_str()), Some("web-1"));
}

#[test]
fn empty_or_missing_variable_leaves_the_default() {
    let names = ["PREFIX", "MAX_TTL", "NODE_TIMEOUT", "QUARANTINE", "PLAIN", "QUEUE", "LABEL"];
    let names = names.iter().chain(&["TLS_CA", "TLS_CERT", "TLS_KEY", "NODES_FILE"]);
    let names: Vec<_> = names.map(|name| format!("REDLOCK_{name}")).collect();
    let empty: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    for variables in [[&[MASTERS], empty.as_slice()].concat(), vec![MASTERS]] {
        let handle = builder(&variables).unwrap().handle().unwrap();
        let settings = &handle.settings;
        assert!(settings.prefix.is_empty() && settings.fencing, "{settings:?}");
        assert_eq!((settings.limits.max_ttl, settings.limits.node_timeout), (None, None));
        assert_eq!(settings.quarantine, Quarantine::On);
        let label = settings.label.as_ref().unwrap().as_str();
        assert!(
            label.contains('@') && label.ends_with(&format!(":{}", std::process::id())),
            "{label}"
        );
    }
}

#[test]
fn masters_are_listed_in_a_variable_or_a_file() {
    let file = File::new("nodes", "# ours\nredis://d\n\nredis://e\n");
    let of_file = ("REDLOCK_NODES_FILE", file.path());
    let names = |variables: &[_]| builder(variables).unwrap().handle().unwrap().names.len();
    assert_eq!(names(&[of_file]), 2);
    assert_eq!(names(&[of_file, ("REDLOCK_NODES", "")]), 2);
    assert_eq!(names(&[of_file, MASTERS]), 3);
}

#[test]
fn without_masters_the_error_names_the_variables() {
    for variables in [vec![], vec![("REDLOCK_NODES", ""), ("REDLOCK_NODES_FILE", "")]] {
        let error = builder(&variables).unwrap_err();
        assert_eq!(error, BuildError::NoneNamed { below_run: false });
        assert!(error.to_string().contains("set REDLOCK_NODES or REDLOCK_NODES_FILE"), "{error}");
    }
    let error = builder(&[("REDLOCK_TOKEN", "t")]).unwrap_err().to_string();
    assert!(error.contains("use `redlock run --pass-nodes`"), "{error}");
    let error = builder(&[("REDLOCK_NODES", " , ")]).unwrap_err().to_string();
    assert!(error.starts_with("REDLOCK_NODES: it names no masters"), "{error}");
    let file = File::new("none", "# later\n");
    let error = builder(&[("REDLOCK_NODES_FILE", file.path())]).unwrap_err().to_string();
    let said = format!("REDLOCK_NODES_FILE: {} names no masters", file.path());
    assert!(error.starts_with(&said), "{error}");
}

#[test]
fn unreadable_file_is_named_with_its_variable() {
    for name in ["REDLOCK_TLS_CA", "REDLOCK_NODES_FILE"] {
        let masters = if name == "REDLOCK_NODES_FILE" { ("REDLOCK_NODES", "") } else { MASTERS };
        let error = builder(&[masters, (name, "/nowhere/file")]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name}: reading /nowhere/file: ")), "{error}");
    }
    let file = File::new("key", "");
    let error = refused(&[("REDLOCK_TLS_KEY", file.path())]);
    assert!(error.contains("REDLOCK_TLS_KEY: it is set without REDLOCK_TLS_CERT"), "{error}");
}

#[test]
fn invalid_value_is_named_with_its_variable() {
    for (name, value, why) in [
        ("REDLOCK_NODES", "redis://a,10.0.0.1", "no scheme"),
        ("REDLOCK_NODES", "redis://a,redis://a:6379", "is listed twice"),
        ("REDLOCK_PREFIX", "redlock-quorum:", "reserved word"),
        ("REDLOCK_MAX_TTL", "soon", "write a duration as 500ms"),
        ("REDLOCK_MAX_TTL", "2d", "must be between"),
        ("REDLOCK_NODE_TIMEOUT", "20s", "a quarter of the TTL"),
        ("REDLOCK_NODE_TIMEOUT", "0", "must be greater than zero"),
        ("REDLOCK_QUARANTINE", "maybe", "expected on or off"),
        ("REDLOCK_PLAIN", "maybe", "expected 1 or 0"),
        ("REDLOCK_QUEUE", "1", "expected on or off"),
        ("REDLOCK_LABEL", "a b", "is not 1 to 64 of"),
    ] {
        let masters = if name == "REDLOCK_NODES" { ("", "") } else { MASTERS };
        let error = builder(&[masters, (name, value)]).and_then(RedlockBuilder::build);
        let error = error.unwrap_err().to_string();
        let place = if name == "REDLOCK_NODES" { "REDLOCK_NODES, URL 2 of 2" } else { name };
        assert!(error.starts_with(&format!("{place}: ")) && error.contains(why), "{error}");
    }
}

#[test]
fn a_bad_line_of_a_file_is_named_with_the_variable_of_the_file() {
    let file = File::new("lines", "redis://a\n10.0.0.1:6379\n");
    let error = builder(&[("REDLOCK_NODES_FILE", file.path())]).unwrap().build().unwrap_err();
    let said = format!("REDLOCK_NODES_FILE: line 2 of {}: ", file.path());
    assert!(error.to_string().starts_with(&said), "{error}");
}

#[test]
fn bad_certificates_are_named_with_their_variable_and_file() {
    let file = File::new("empty.pem", "");
    let masters = ("REDLOCK_NODES", "rediss://127.0.0.1:1");
    let error = builder(&[masters, ("REDLOCK_TLS_CA", file.path())]).unwrap().build();
    let error = error.unwrap_err().to_string();
    let said = format!("REDLOCK_TLS_CA {}: TLS: the CA: ", file.path());
    assert!(error.starts_with(&said), "{error}");
}

#[test]
fn settings_of_the_program_win_and_are_not_blamed_on_variables() {
    let builder = builder(&[MASTERS, ("REDLOCK_PREFIX", "app:"), ("REDLOCK_NODE_TIMEOUT", "2s")]);
    let builder = builder.unwrap();
    let error = builder.clone().prefix("redlock-quorum:").build().unwrap_err().to_string();
    assert!(error.starts_with("the prefix"), "{error}");
    let error = builder.clone().ttl(Duration::from_secs(4)).build().unwrap_err().to_string();
    assert!(error.starts_with("REDLOCK_NODE_TIMEOUT: node timeout 2s must be at most"), "{error}");
    let handle = builder.prefix("other:").handle().unwrap();
    assert_eq!(&*handle.settings.prefix, b"other:");
}

#[test]
fn file_provides_values_missing_from_the_environment() {
    let text = "REDLOCK_NODES=redis://d,redis://e\nREDLOCK_PREFIX=file:\nREDLOCK_LABEL=f\n";
    let file = File::new("config", text);
    let config = ("REDLOCK_CONFIG", file.path());
    let settings = |variables: &[_]| {
        let handle = builder(&[&[config], variables].concat()).unwrap().handle().unwrap();
        let label = handle.settings.label.as_ref().unwrap().to_string();
        (handle.names.len(), handle.settings.prefix.clone(), label)
    };
    assert_eq!(settings(&[]), (2, b"file:"[..].into(), "f".into()));
    let some = [MASTERS, ("REDLOCK_PREFIX", "app:"), ("REDLOCK_LABEL", "")];
    assert_eq!(settings(&some), (3, b"app:"[..].into(), "f".into()));
}

/// The masters are one setting: a list of the file never joins or hides that of the environment.
#[test]
fn masters_of_the_environment_hide_both_variables_of_the_file() {
    let list = File::new("config-list", "redis://d\nredis://e\n");
    let text = "REDLOCK_NODES=redis://a\nREDLOCK_NODES_FILE=/nowhere/nodes\n";
    let file = File::new("config-masters", text);
    let config = ("REDLOCK_CONFIG", file.path());
    let count = |variables: &[_]| builder(variables).unwrap().handle().unwrap().names.len();
    assert_eq!(count(&[config]), 1);
    assert_eq!(count(&[config, ("REDLOCK_NODES_FILE", list.path())]), 2);
    assert_eq!(count(&[config, MASTERS]), 3);
}

#[test]
fn invalid_value_in_the_file_is_named_with_its_line() {
    for (line, why) in [
        ("REDLOCK_NODES=10.0.0.1", "no scheme"),
        ("REDLOCK_NODES=,", "it names no masters"),
        ("REDLOCK_NODES_FILE=/nowhere/nodes", "reading /nowhere/nodes"),
        ("REDLOCK_TLS_CA=/nowhere/ca", "reading /nowhere/ca"),
        ("REDLOCK_PREFIX=redlock-quorum:", "reserved word"),
        ("REDLOCK_MAX_TTL=soon", "write a duration as 500ms"),
        ("REDLOCK_MAX_TTL=2d", "must be between"),
        ("REDLOCK_NODE_TIMEOUT=0", "must be greater than zero"),
        ("REDLOCK_QUARANTINE=maybe", "expected on or off"),
        ("REDLOCK_LABEL=a b", "is not 1 to 64 of"),
    ] {
        let file = File::new("config-bad", &format!("# ours\n{line}\n"));
        let masters = if line.contains("NODES") { ("", "") } else { MASTERS };
        let error = builder(&[masters, ("REDLOCK_CONFIG", file.path())]);
        let error = error.and_then(RedlockBuilder::build).unwrap_err().to_string();
        let name = line.split('=').next().unwrap();
        let said = format!("{name} (line 2 of {}): ", file.path());
        assert!(error.starts_with(&said) && error.contains(why), "{error}");
    }
}
