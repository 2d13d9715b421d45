//! `redlock release`: give a lock back, by its token.

use redlock_quorum::{Lease, ReleaseError};

use crate::args::{Global, Release};
use crate::exit::Failure;
use crate::output::{self, Released};
use crate::session::Session;

pub(crate) async fn release(global: &Global, args: &Release) -> Result<u8, Failure> {
    let session = Session::new(global, &args.key, None)?;
    let lease = Lease::new(&session.key, &args.token, session.ttl)?;
    let outcome = session.redlock.release(lease).await;
    let printed = match &outcome {
        Err(ReleaseError::Invalid(_) | ReleaseError::Shutdown) => Ok(()),
        outcome if args.json => {
            output::json(&Released { key: session.key.to_string(), released: outcome.is_ok() })
        }
        _ => Ok(()),
    };
    session.close().await;
    outcome?;
    printed.map(|()| 0)
}
