//! One lock, by hand: `acquire`, `extend`, `release` and `status`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::Patience;
use crate::duration::{self, Wait};

#[derive(Args, Debug)]
pub(crate) struct Acquire {
    /// What the lock is for
    pub(crate) key: OsString,
    /// How long the lock lasts [default: 30s]
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long to wait for the lock; `forever` is a duration, too
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
    /// What the lock is for
    pub(crate) key: OsString,
    /// The token that `acquire` printed
    pub(crate) token: String,
    /// How long the lock lasts from now [default: 30s]
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// Print an object: key, token, fencing_token, ttl_ms, validity_ms
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// What the lock is for
    pub(crate) key: OsString,
    /// The token that `acquire` printed
    #[arg(required_unless_present = "force", conflicts_with = "force")]
    pub(crate) token: Option<String>,
    /// Delete a stuck lock, no matter who holds it: a holder that still works loses it
    #[arg(long)]
    pub(crate) force: bool,
    /// Delete the mark of what was completed under this name (`run --once-in`, `--fire`), and not
    /// its lock: it is done again when it is asked for
    #[arg(long, requires = "force", conflicts_with = "token")]
    pub(crate) mark: bool,
    /// Do not ask before deleting by force; needed where there is no terminal
    #[arg(long, conflicts_with = "token")]
    pub(crate) yes: bool,
    /// Print an object: key, released; with --force: key, deleted
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// What the lock is for; without it, all locks that are held under the prefix are listed
    pub(crate) key: Option<OsString>,
    /// Print an object: key, state, token, ttl_ms, waiters, since_ms, done, set, nodes; without a key: locks, done,
    /// truncated
    #[arg(long)]
    pub(crate) json: bool,
}
