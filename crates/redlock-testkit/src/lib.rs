//! Tools to test a distributed lock: masters that a test can break.
//!
//! Real masters are processes of `redis-server` or `valkey-server` that exit when their value is
//! dropped. A [`FaultProxy`] in front of each adds network faults:
//!
//! ```no_run
//! use redlock_testkit::{Direction, RedisServers};
//!
//! # async fn example() -> anyhow::Result<()> {
//! let servers = RedisServers::start(5)?;
//! let proxies = servers.proxied().await?;
//! let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url()).collect();
//! // ... make a lock of `urls`, then:
//! servers[0].pause()?;
//! proxies[1].drop(Direction::ToClient);
//! # Ok(())
//! # }
//! ```
//!
//! Simulated masters ([`SimNodes`]) run in tokio's paused time, and each has its own clock. Hours
//! of faults take milliseconds, and a seed repeats them. [`check`] judges the [`History`] of the
//! contenders, [`check_tokens`] their fencing tokens, and [`check_fires`] jobs that must run once.
//!
//! Common helpers, such as waiting with a deadline, are in [`lab`].

mod checker;
mod history;
pub mod lab;
mod proxy;
mod server;
mod sim;

pub use checker::{
    Claim, Completed, Disorder, Exclusion, Fenced, Overlap, Repeat, Residue, TokenOrder, TokenRule,
    check, check_fires, check_tokens, no_residue,
};
pub use history::{Contender, Event, History, Record};
pub use proxy::{Direction, FaultProxy};
pub use server::{RedisServer, RedisServers, ServerOptions};
pub use sim::{
    Action, Ballots, Data, Executed, Fault, InFlight, Meeting, Nemesis, Outbox, Restart, SimNode,
    SimNodes, Snapshot, Step, Tickets, World, reserve, take,
};
