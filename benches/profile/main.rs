//! The cost of a lock for the client: instructions, allocations and system calls, by file, compared
//! with the floor. These are counters rather than times, so a busy machine hardly changes them.
//!
//! The client runs alone in its own process under a counting tool, once for few locks and once for
//! many. The difference is the cost of the locks, because one-time costs cancel out.

// Modules of a program, and no library.
#![allow(unreachable_pub)]

#[path = "../support/mod.rs"]
mod support;

mod callgrind;
mod dhat;
mod table;
mod tools;

use std::time::Duration;

use anyhow::{Context, bail};
use redlock_quorum::Redlock;
use redlock_testkit::{RedisServer, RedisServers};

use support::floor::Floor;
use support::stats::Stop;
use support::{Flavour, peers};
use table::{Count, Counts, Table};

/// How many locks the two runs have, all tasks together.
const FEW: usize = 1_024;
const MANY: usize = 5_120;

/// How long masters have for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        None => report(),
        Some("work") => work(&words[1..]),
        Some(word) => bail!("{word} is not known here: the profile takes no arguments"),
    }
}

/// All cases, counted one after the other on the same masters.
fn report() -> anyhow::Result<()> {
    let servers = RedisServers::start(5)?;
    let names: Vec<String> = servers.iter().map(RedisServer::name).collect();
    let mut table = Table::begin()?;
    for tasks in [1, 64] {
        let counted = |who| count(who, tasks, &names);
        table.case(tasks, &[counted("floor")?, counted("redlock")?])?;
    }
    println!("What was counted is in {}", support::stats::folder()?.join("profile").display());
    Ok(())
}

/// Returns the cost of a lock for this contestant.
fn count(who: &str, tasks: usize, names: &[String]) -> anyhow::Result<Count> {
    let measure = |tool: tools::Tool| -> anyhow::Result<Counts> {
        let few = tool.run(who, tasks, FEW, names)?;
        let many = tool.run(who, tasks, MANY, names)?;
        Ok(many.less(few).each(MANY - FEW))
    };
    Ok(Count {
        who: who.to_owned(),
        instructions: measure(tools::CALLGRIND)?,
        allocations: measure(tools::DHAT)?,
        calls: measure(tools::STRACE)?,
    })
}

/// The measured process: this contestant acquires this many locks, and exits.
fn work(words: &[String]) -> anyhow::Result<()> {
    let [who, tasks, locks, names @ ..] = words else { bail!("who, tasks, locks, masters") };
    let (tasks, locks): (usize, usize) = (tasks.parse()?, locks.parse()?);
    let runtime = Flavour::CurrentThread.build()?;
    let done = runtime.block_on(async {
        let (tasks, names) = (tasks, names.to_owned());
        match who.as_str() {
            "floor" => {
                let mut floor = Floor::connect_fenced(&names).await?;
                // The floor counts the locks of all its clients, and a peer counts the locks of
                // each task.
                let run = async move {
                    let samples = floor.run(tasks, Stop::After(locks)).await?;
                    floor.settle().await.map(|()| samples)
                };
                runtime.spawn(run).await?
            }
            "redlock" => {
                let urls = names.iter().map(|name| format!("redis://{name}"));
                // A client that a tool slows down must not run into its own timeouts.
                let ours = Redlock::builder().nodes(urls).node_timeout(PATIENCE).build()?;
                let run = peers::run(ours.clone(), tasks, Stop::After(locks / tasks));
                let samples = runtime.spawn(run).await?;
                // No key is left for the next process.
                ours.shutdown(Duration::from_secs(5)).await?;
                samples
            }
            _ => bail!("{who} is not known here"),
        }
    });
    done.map(drop).with_context(|| format!("{who}, {tasks} tasks"))
}
