//! What a test of a distributed lock needs: masters it may break.
//!
//! Real masters are processes of `redis-server` or `valkey-server` that live as long as the value
//! that stands for them, and a [`FaultProxy`] before each makes the network as bad as a test asks:
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
//! Simulated masters ([`SimNodes`]) live in tokio's paused time, each with a clock of its own, so
//! that hours of faults take milliseconds and a seed repeats them. A [`History`] of what contenders
//! learned is judged by [`check`], their fencing tokens by [`check_tokens`], and what is to be done
//! once by [`check_fires`].
//!
//! What tests repeat, such as waiting with a deadline, is in [`lab`].

mod checker;
mod history;
pub mod lab;
mod proxy;
mod server;
mod sim;

pub use checker::{
    Claim, Completed, Disorder, Fenced, Overlap, Repeat, Residue, TokenRule, check, check_fires,
    check_tokens, claims, no_residue,
};
pub use history::{Contender, Event, History, Record};
pub use proxy::{Direction, FaultProxy};
pub use server::{RedisServer, RedisServers, ServerOptions};
pub use sim::{Action, Ballots, Data, Executed, Fault, Nemesis, SimNode, SimNodes, Step};
