//! The counting tools and their output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::support::stats::folder;
use crate::table::Counts;
use crate::{callgrind, dhat};

/// A program that runs another program and counts its events.
pub struct Tool {
    name: &'static str,
    /// The words before the measured program, without the option for the file.
    words: &'static [&'static str],
    /// The option for the output file.
    out: &'static str,
    read: fn(&str) -> anyhow::Result<Counts>,
}

/// Instructions, by file.
pub const CALLGRIND: Tool = Tool {
    name: "callgrind",
    words: &["valgrind", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no"],
    out: "--callgrind-out-file=",
    read: callgrind::read,
};

/// Allocations, by the function of ours that they were made for.
pub const DHAT: Tool = Tool {
    name: "dhat",
    words: &["valgrind", "--tool=dhat", "--num-callers=40"],
    out: "--dhat-out-file=",
    read: dhat::read,
};

/// System calls, by name.
pub const STRACE: Tool = Tool {
    name: "strace",
    words: &["strace", "-f", "-c", "-U", "calls,name"],
    out: "--output=",
    read: calls,
};

impl Tool {
    /// Counts one run of `locks` locks.
    pub fn run(
        &self,
        who: &str,
        tasks: usize,
        locks: usize,
        names: &[String],
    ) -> anyhow::Result<Counts> {
        let name = format!("{}.{who}.{tasks}.{locks}", self.name);
        let file = place()?.join(name);
        self.command(&file, who, tasks, locks, names)?;
        (self.read)(&fs::read_to_string(&file)?)
    }

    fn command(
        &self,
        file: &Path,
        who: &str,
        tasks: usize,
        locks: usize,
        names: &[String],
    ) -> anyhow::Result<()> {
        let out = format!("{}{}", self.out, file.display());
        let mut command = Command::new(self.words[0]);
        command.args(&self.words[1..]).arg(out).arg(std::env::current_exe()?);
        command.args(["work", who, &tasks.to_string(), &locks.to_string()]).args(names);
        let done = command.stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let done = done.with_context(|| format!("{} does not start", self.words[0]))?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{} of {who} failed: {said}", self.name);
        Ok(())
    }
}

/// Returns the directory of the tools' own files, which are kept for inspection.
fn place() -> anyhow::Result<PathBuf> {
    let place = folder()?.join("profile");
    fs::create_dir_all(&place)?;
    Ok(place)
}

/// A line of strace's summary is the number of calls and the name.
fn calls(text: &str) -> anyhow::Result<Counts> {
    let mut counts = Counts::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(count), Some(name)) = (words.next(), words.next()) else { continue };
        if let Ok(count) = count.parse::<u64>()
            && name != "total"
        {
            counts.add(name, count as f64);
        }
    }
    ensure!(!counts.is_empty(), "strace has counted nothing");
    Ok(counts)
}
