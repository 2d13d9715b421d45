//! The `redlock` command.
//!
//! In reading order: `args` and `global` (the options), `command` (one file per subcommand),
//! `masters`, `session` and `waiting` (the handle on the masters), `direct` (queries that the
//! library does not offer), `supervise`, `child`, `group`, `launcher`, `watchdog`, `environment`,
//! `held`, `place`, `process`, `terminal` and `signals` (the parts of `run`), `answers`, `key`,
//! `moment`, `output` and `exit` (the output).

mod answers;
mod args;
mod child;
mod command;
mod dashes;
mod definition;
mod direct;
mod done;
mod duration;
mod environment;
mod exit;
mod fire;
mod global;
mod group;
mod held;
mod help;
mod key;
mod keys;
mod label;
mod launcher;
mod lists;
mod masters;
mod moment;
mod number;
mod output;
mod permits;
mod place;
mod process;
mod rights;
mod session;
mod signals;
mod stderr;
mod supervise;
mod terminal;
mod usage;
mod waiting;
mod watchdog;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};

use args::{Cli, Command};
use exit::{Failure, UNAVAILABLE};

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if launcher::is_meant(&words) {
        return launcher::launch(&words);
    }
    if watchdog::is_meant(&words) {
        return watchdog::watch();
    }
    match usage::parse(&words) {
        Ok(cli) => ExitCode::from(execute(cli).unwrap_or_else(|failure| failure.report())),
        Err(code) => ExitCode::from(code),
    }
}

fn execute(cli: Cli) -> Result<u8, Failure> {
    if let Command::Generate(generate) = &cli.command {
        return command::generate::generate(&generate.what);
    }
    let runtime = runtime().map_err(|error| Failure::new(UNAVAILABLE, error))?;
    let outcome = runtime.block_on(run(cli));
    // Does not wait for a name lookup that hangs.
    runtime.shutdown_background();
    outcome
}

/// One thread does everything: it starts faster than several, a command's parent (which is a
/// thread, to the kernel) lives as long as the process, and there is little to do at a time.
fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("starting the runtime")
}

async fn run(cli: Cli) -> Result<u8, Failure> {
    let Cli { mut global, command } = cli;
    // A variable about masters must not affect a command that contacts none.
    match command {
        Command::Generate(_) => {}
        Command::Dev(_) => global.fill_prefix()?,
        _ => global.fill()?,
    }
    let global = &global;
    match &command {
        Command::Run(args) => command::run::run(global, args).await,
        Command::Acquire(args) => command::acquire::acquire(global, args).await,
        Command::Extend(args) => command::extend::extend(global, args).await,
        Command::Release(args) => command::release::release(global, args).await,
        Command::Status(args) => command::status::status(global, args).await,
        Command::Init(args) => command::init::init(global, args).await,
        Command::Doctor(args) => command::doctor::doctor(global, args).await,
        Command::Acl(args) => command::acl::acl(global, args).await,
        Command::Dev(args) => command::dev::dev(global, args).await,
        // It needs no runtime.
        Command::Generate(args) => command::generate::generate(&args.what),
    }
}
