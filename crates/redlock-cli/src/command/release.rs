//! `redlock release`: give a lock back, by its token.

use redlock_quorum::{Lease, ReleaseError};

use crate::args::Release;
use crate::command::force;
use crate::exit::Failure;
use crate::global::Global;
use crate::output::{self, Released};
use crate::session::Session;

pub(crate) async fn release(global: &Global, args: &Release) -> Result<u8, Failure> {
    match &args.token {
        Some(token) => by_token(global, args, token).await,
        None => force::force(global, args).await,
    }
}

async fn by_token(global: &Global, args: &Release, token: &str) -> Result<u8, Failure> {
    let session = Session::new(global, &args.key)?;
    let lease = Lease::new(&session.key, token, session.ttl.get())?;
    let outcome = session.redlock.release(lease).await;
    let printed = match &outcome {
        Err(ReleaseError::Invalid(_) | ReleaseError::Shutdown) => Ok(()),
        outcome if args.json => {
            output::json(&Released { key: session.key.to_string(), released: outcome.is_ok() })
        }
        _ => Ok(()),
    };
    let outcome = outcome.map_err(|error| session.explained(error.into()));
    session.close().await;
    outcome?;
    printed.map(|()| 0)
}
