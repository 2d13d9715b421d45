//! The masters: `init`, `doctor` and `dev`.

use clap::Args;
use redlock_quorum::FencingToken;

use crate::number;

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Skip the confirmation; required without a terminal
    #[arg(long)]
    pub(crate) yes: bool,
    /// Admit masters even though this prefix is in use, apply --max-ttl, and record a list that
    /// differs by more than one master, without confirmation
    #[arg(long)]
    pub(crate) again: bool,
    /// Smallest fencing token to hand out from now on; applies to masters that this call admits
    #[arg(long, value_name = "FENCING_TOKEN", allow_negative_numbers = true, value_parser = floor)]
    pub(crate) floor: Option<FencingToken>,
    /// Accept a --floor more than a minute ahead of the masters' clocks; pass it again, above every
    /// token seen, if all masters ever restart empty
    #[arg(long, requires = "floor")]
    pub(crate) far_floor: bool,
    /// Print an object: nodes, floor, set
    #[arg(long)]
    pub(crate) json: bool,
}

/// A number that may be a fencing token.
fn floor(text: &str) -> Result<FencingToken, String> {
    let token = text.parse().ok().and_then(FencingToken::new);
    token.ok_or_else(|| "expected a fencing token: an integer below 2^53".into())
}

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Print an object: settings, nodes, findings
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Acl {
    /// Test the rights of the user in each URL; write nothing
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Dev {
    /// Number of masters, 1 to 15
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = number::within::<u16>(1..=15))]
    pub(crate) nodes: u16,
    /// Port of the first master; the others follow
    #[arg(long, value_name = "PORT", default_value_t = 7001)]
    #[arg(value_parser = number::within::<u16>(1..=65_521))]
    pub(crate) port: u16,
}
