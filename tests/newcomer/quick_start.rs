//! The quick start of the README, run line by line as a newcomer runs it.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use crate::{README, blocks, root};

/// The command installs below this directory, which comes first on the path.
fn home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("quick-start")
}

/// A shell in the clone, with no masters configured.
fn shell(script: &str) -> Command {
    let cargo = Path::new(env!("CARGO")).parent().unwrap();
    let before = [home().join("bin"), cargo.to_owned()];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(before.into_iter().chain(std::env::split_paths(&path)));
    let mut command = Command::new("sh");
    command.args(["-euc", script]).current_dir(root()).stdin(Stdio::null());
    command.env("PATH", path.unwrap());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REDLOCK_") {
            command.env_remove(name);
        }
    }
    command.env("REDLOCK_CONFIG", "/dev/null");
    command
}

fn successful(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the first of five free ports, outside the range of other tests.
fn free_ports() -> u16 {
    let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    (14_000..14_990).step_by(5).find(|port| (*port..port + 5).all(is_free)).unwrap()
}

/// `redlock dev`, stopped with its masters when it is dropped.
struct Dev(Child);

impl Dev {
    /// Starts it, and returns the line that it prints.
    fn start(line: &str) -> (Self, String) {
        let mut command = shell(&format!("exec {line} --port {}", free_ports()));
        let mut dev = Self(command.stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(dev.0.stdout.take().unwrap()).lines();
        let mut printed = lines.map_while(Result::ok);
        let nodes = printed.find(|line| line.starts_with("REDLOCK_NODES="));
        (dev, nodes.unwrap())
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let stopped = Command::new("kill").arg(pid).status();
        drop(stopped.and_then(|_| self.0.wait()));
    }
}

/// The lines without their comments.
fn lines() -> Vec<&'static str> {
    let shells = blocks(README, "sh");
    let lines = shells[0].lines();
    lines.map(|line| line.split(" #").next().unwrap().trim()).collect()
}

#[test]
fn quick_start_runs_line_by_line() {
    let lines = lines();
    let [install, dev, export, deploy, report, status] = lines[..] else { panic!("{lines:?}") };
    // A debug build shares what this workspace has compiled.
    let more = format!("--debug --offline --force --quiet --root '{}'", home().display());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let installed = shell(&format!("{install} {more}")).env("CARGO_TARGET_DIR", target).output();
    successful(installed.unwrap());

    let (_dev, nodes) = Dev::start(dev);
    let export = export.replace("REDLOCK_NODES=...", &nodes);
    assert!(export.contains("redis://"), "{export}");
    let run = |line: &str| shell(&format!("{export}\n{line}")).output().unwrap();
    thread::scope(|scope| {
        let terminals = [(); 2].map(|()| scope.spawn(|| run(deploy)));
        terminals.into_iter().for_each(|terminal| drop(successful(terminal.join().unwrap())));
    });
    let dates = [(); 2].map(|()| successful(run(report)));
    assert!(!dates[0].is_empty() && dates[1].is_empty(), "{dates:?}");
    assert!(successful(run(status)).contains("report"), "it was completed");
}
