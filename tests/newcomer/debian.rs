//! The Debian package of `make dist`: installed, installed again, removed and purged.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use redlock_testkit::RedisServers;

use crate::transcripts::{dist, machine};

const PACKAGE: &str = "redlock_0.1.0-1_amd64.deb";

/// Runs `dpkg` on the packages below the root of this machine.
fn dpkg(machine: &Path, words: &[&str]) {
    let output = Command::new(machine.join("bin/dpkg")).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

#[test]
fn debian_package_keeps_its_configuration_until_purged() {
    let Some(dist) = dist(PACKAGE) else {
        println!("skipped: there is no package for amd64; make dist writes it");
        return;
    };
    let (package, machine) = (dist.join(PACKAGE), machine("debian"));
    let root = machine.join("root");
    let install = || dpkg(&machine, &["--install", package.to_str().unwrap()]);
    install();
    for (file, mode) in [
        ("usr/bin/redlock", 0o755),
        ("etc/redlock/config", 0o644),
        ("usr/lib/systemd/system/redlock@.service", 0o644),
        ("usr/lib/systemd/system/redlock@.timer", 0o644),
        ("usr/share/man/man1/redlock-run.1", 0o644),
        ("usr/share/bash-completion/completions/redlock", 0o644),
        ("usr/share/doc/redlock/copyright", 0o644),
    ] {
        let found = fs::metadata(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(found.permissions().mode() & 0o777, mode, "{file}");
    }
    let config = root.join("etc/redlock/config");
    assert!(fs::read_to_string(&config).unwrap().lines().all(|line| line.starts_with('#')));
    fs::write(&config, "REDLOCK_PREFIX=app:\n").unwrap();
    let is_kept = || fs::read_to_string(&config).unwrap() == "REDLOCK_PREFIX=app:\n";
    install();
    assert!(is_kept(), "an upgrade keeps it");
    dpkg(&machine, &["--remove", "redlock"]);
    assert!(is_kept() && !root.join("usr/bin/redlock").exists());
    dpkg(&machine, &["--purge", "redlock"]);
    assert!(!root.join("etc/redlock").exists());
}

fn can_change_root() -> bool {
    let status = Command::new("unshare").args(["--map-root-user", "true"]).status();
    status.is_ok_and(|status| status.success())
}

/// A container from scratch has no libraries and no users, and a bare root has no devices either.
#[test]
fn packaged_command_works_in_an_empty_root() {
    let Some(dist) = dist(PACKAGE).filter(|_| can_change_root()) else {
        println!("skipped: there is no package for amd64, or no right to change the root");
        return;
    };
    let (machine, servers) = (machine("empty-root"), RedisServers::start(3).unwrap());
    dpkg(&machine, &["--install", dist.join(PACKAGE).to_str().unwrap()]);
    let mut redlock = Command::new("unshare");
    redlock.args(["--map-root-user", "chroot"]).arg(machine.join("root"));
    redlock.args(["/usr/bin/redlock", "acquire", "k"]).env_remove("REDLOCK_CONFIG");
    redlock.env("REDLOCK_NODES", servers.urls().join(",")).env("REDLOCK_NODE_TIMEOUT", "1s");
    let output = redlock.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
