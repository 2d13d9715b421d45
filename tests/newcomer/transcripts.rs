//! The transcripts of the installation, replayed: each command prints what the page shows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redlock_testkit::RedisServers;

use crate::{blocks, root};

const CLI: &str = include_str!("../../docs/CLI.md");
/// A line of a transcript in place of output that is not shown.
const LEFT_OUT: &str = "...";
const END: &str = "<<end of a command>>";
/// The target of the archive in the transcript. With musl or on another architecture, it differs.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A command, and the lines that it prints.
type Step<'a> = (&'a str, Vec<&'a str>);

/// The steps of the block that contains `word`.
fn transcript(word: &str) -> Vec<Step<'static>> {
    let found = blocks(CLI, "console").into_iter().find(|block| block.contains(word));
    let mut steps: Vec<Step<'static>> = Vec::new();
    for line in found.unwrap_or_else(|| panic!("no transcript has {word}")).lines() {
        match line.strip_prefix("$ ") {
            Some(command) => steps.push((command, Vec::new())),
            None => steps.last_mut().unwrap().1.push(line),
        }
    }
    steps
}

fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned()
}

/// An empty folder with a home and with stand-ins for programs that would change this machine.
pub(crate) fn machine(name: &str) -> PathBuf {
    let machine = target().join("tmp/transcripts").join(name);
    drop(fs::remove_dir_all(&machine));
    fs::create_dir_all(machine.join("root/var/lib/dpkg/info")).unwrap();
    fs::create_dir_all(machine.join("root/var/lib/dpkg/updates")).unwrap();
    fs::write(machine.join("root/var/lib/dpkg/status"), "").unwrap();
    fs::create_dir_all(machine.join("bin")).unwrap();
    let root = machine.join("root").display().to_string();
    let dpkg = format!(
        "exec /usr/bin/dpkg --root='{root}' --log=/dev/null --force-not-root --force-bad-path \"$@\""
    );
    for (program, does) in [("sudo", "exec \"$@\""), ("dpkg", &dpkg)] {
        let file = machine.join("bin").join(program);
        fs::write(&file, format!("#!/bin/sh\n{does}\n")).unwrap();
        let status = Command::new("chmod").args(["755"]).arg(&file).status().unwrap();
        assert!(status.success());
    }
    machine
}

/// Runs all commands in one shell, and returns what each has printed.
fn run(steps: &[Step<'_>], machine: &Path, folder: &Path, servers: &RedisServers) -> Vec<String> {
    let mut script = String::from("set -eu\n");
    for (command, _) in steps {
        script += &format!("{command}\necho '{END}'\n");
    }
    let script = script.replace(TARGET, archived().as_deref().unwrap_or(TARGET));
    let path = std::env::var("PATH").unwrap_or_default();
    let places = [machine.join("bin"), machine.join("root/usr/bin")];
    let path = format!("{}:{}:{path}", places[0].display(), places[1].display());
    let home = std::env::var("HOME").unwrap_or_default();
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REDLOCK_") {
            bash.env_remove(name);
        }
    }
    for (variable, default) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        if std::env::var_os(variable).is_none() {
            bash.env(variable, Path::new(&home).join(default));
        }
    }
    bash.env("HOME", machine).env("PATH", path).env("CARGO_TARGET_DIR", target());
    bash.env("REDLOCK_CONFIG", "/dev/null").env("REDLOCK_NODES", servers.urls().join(","));
    // A debug build shares what this workspace has compiled.
    bash.env("REDLOCK_NODE_TIMEOUT", "1s").env("PROFILE", "dev");
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{steps:?}: {output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    printed.split(&format!("{END}\n")).map(str::to_owned).collect()
}

/// Replays the transcript with this word in a folder that has what its reader has.
fn replay(name: &str, word: &str, folder: impl FnOnce(&Path) -> PathBuf) {
    let (steps, machine) = (transcript(word), machine(name));
    let servers = RedisServers::start(3).unwrap();
    let folder = folder(&machine);
    let printed = run(&steps, &machine, &folder, &servers);
    for ((command, shown), printed) in steps.iter().zip(printed) {
        let is_left_out = *shown == [LEFT_OUT];
        assert!(is_left_out || shown.join("\n") == printed.trim_end(), "{command}: {printed}");
    }
}

/// The folder of `make dist`, if that has written this file.
pub(crate) fn dist(file: &str) -> Option<PathBuf> {
    let dist = target().join("dist");
    dist.join(file).exists().then_some(dist)
}

/// The target of the archive of `make dist`, if that has written one.
fn archived() -> Option<String> {
    let files = fs::read_dir(target().join("dist")).ok()?;
    let mut names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let target = |name: String| {
        name.strip_prefix("redlock-0.1.0-")?.strip_suffix(".tar.gz").map(str::to_owned)
    };
    names.find_map(target)
}

fn copied(dist: &Path, machine: &Path) -> PathBuf {
    let folder = machine.join("downloads");
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(dist).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    folder
}

#[test]
fn the_transcript_of_the_archive_is_replayed() {
    match archived() {
        Some(_) => replay("archive", "tar -xzf", |machine| copied(&target().join("dist"), machine)),
        None => println!("skipped: there is no archive; make dist writes it"),
    }
}

#[test]
fn the_transcript_of_the_debian_package_is_replayed() {
    match dist("redlock_0.1.0-1_amd64.deb") {
        Some(dist) => replay("deb", "dpkg --install", |machine| copied(&dist, machine)),
        None => println!("skipped: there is no package for amd64; make dist writes it"),
    }
}

#[test]
fn the_transcript_of_the_image_is_replayed() {
    let inspected = Command::new("docker").args(["image", "inspect", "redlock:local"]).output();
    match inspected {
        Ok(output) if output.status.success() => replay("image", "docker run", Path::to_owned),
        _ => println!("skipped: there is no image redlock:local; make container builds it"),
    }
}

#[test]
fn the_transcript_of_the_sources_is_replayed() {
    replay("sources", "make install", |_| root());
}
