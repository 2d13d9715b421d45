//! One lock, by hand: `acquire`, `extend`, `release` and `status`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use redlock_quorum::Semaphore;

use super::Patience;
use crate::duration::{self, Wait};
use crate::number;

#[derive(Args, Debug)]
pub(crate) struct Acquire {
    /// Name of the lock
    pub(crate) key: OsString,
    /// Lease time [default: 30s]
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for the lock, or `forever`
    #[arg(
        long,
        value_name = "D",
        default_value = "0s",
        allow_negative_numbers = true,
        value_parser = duration::parse_wait
    )]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) patience: Patience,
    /// Print an object: key, token, fencing_token, ttl_ms, validity_ms
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Extend {
    /// Name of the lock
    pub(crate) key: OsString,
    /// The token that `acquire` printed
    pub(crate) token: String,
    /// Lease time from now on [default: 30s]
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// Print an object: key, token, fencing_token, ttl_ms, validity_ms
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// Name of the lock
    pub(crate) key: OsString,
    /// The token that `acquire` printed
    #[arg(required_unless_present = "force", conflicts_with = "force")]
    pub(crate) token: Option<String>,
    /// Delete a stuck lock of any holder; a running holder loses it
    #[arg(long)]
    pub(crate) force: bool,
    /// Delete the completion mark of this name (`run --once-in`, `--fire`) instead of the lock; the
    /// job runs again at the next request
    #[arg(long, requires = "force", conflicts_with = "token")]
    pub(crate) mark: bool,
    /// Skip the confirmation; required without a terminal
    #[arg(long, conflicts_with = "token")]
    pub(crate) yes: bool,
    /// Print an object: key, released; with --force: key, deleted
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Name of the lock; without it, all held locks under the prefix are listed
    pub(crate) key: Option<OsString>,
    /// Print a line for each change of the state or the holder until Ctrl-C
    #[arg(long, requires = "key", conflicts_with = "permits")]
    pub(crate) watch: bool,
    /// Show the permits of a semaphore, as `run --permits` takes them: 1 to 64
    #[arg(
        long,
        value_name = "N",
        requires = "key",
        allow_negative_numbers = true,
        value_parser = number::within::<u32>(1..=Semaphore::PERMITS_MAX)
    )]
    pub(crate) permits: Option<u32>,
    /// Print an object: key, state, token, ttl_ms, waiters, since_ms, done, set, nodes; without a
    /// key: locks, done, truncated; with --permits: key, permits, waiters, slots
    #[arg(long)]
    pub(crate) json: bool,
}
