//! `redlock release`: releases a lock by its token.

use anyhow::anyhow;
use redlock_quorum::{Lease, ReleaseError};

use crate::answers;
use crate::args::Release;
use crate::command::{force, marks};
use crate::exit::{Failure, NOT_OURS, UNAVAILABLE};
use crate::global::Global;
use crate::output::{self, Released};
use crate::session::Session;

pub(crate) async fn release(global: &Global, args: &Release) -> Result<u8, Failure> {
    match &args.token {
        Some(token) => by_token(global, args, token).await,
        None if args.mark => marks::remove(global, args).await,
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
            output::json(&Released { key: (&session.key).into(), released: outcome.is_ok() })
        }
        _ => Ok(()),
    };
    let outcome = match outcome {
        Ok(()) => Ok(()),
        Err(error) => Err(not_released(&session, error).await),
    };
    session.close().await;
    outcome?;
    printed.map(|()| 0)
}

async fn not_released(session: &Session, error: ReleaseError) -> Failure {
    let votes = error.votes().cloned();
    if let Some(votes) = &votes {
        session.say(&session.key, "not released", votes);
    }
    let failure = match error {
        ReleaseError::Invalid(why) => why.into(),
        ReleaseError::NotOurs { .. } => Failure::new(NOT_OURS, anyhow!(words(&error))),
        _ => Failure::new(UNAVAILABLE, anyhow!(words(&error))),
    };
    session.explained(failure, &answers::causes(votes.iter().flatten())).await
}

/// Returns why a lock is not known to be released.
pub(crate) fn words(error: &ReleaseError) -> String {
    let said = error.votes().map(answers::released).unwrap_or_default();
    match error {
        ReleaseError::NotOurs { resource, .. } if error.is_late() => {
            format!("{resource} was released after its lease had ended: {said}")
        }
        ReleaseError::NotOurs { resource, .. } => {
            format!("{resource} was already lost, or was never held by this token: {said}")
        }
        ReleaseError::Unconfirmed { resource, .. } => {
            format!("{resource}: release not confirmed by a quorum: {said}")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redlock_quorum::Redlock;
    use redlock_testkit::SimNodes;

    use super::*;

    /// The masters keep a key a little longer than the validity of its holder.
    #[tokio::test(start_paused = true)]
    async fn late_release_does_not_contradict_itself() {
        let masters = SimNodes::new(3, 1);
        masters.init(Duration::from_secs(60));
        let redlock = Redlock::builder().masters(masters.nodes()).clock(masters.clock());
        let redlock = redlock.ttl(Duration::from_secs(1)).build().unwrap();
        let guard = redlock.lock("k").auto_extend(false).min_copies(3).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_020)).await;
        let said = words(&guard.release().await.unwrap_err());
        assert!(said.starts_with("k was released after its lease had ended: "), "{said}");
        assert!(said.ends_with("3 masters: released"), "{said}");
        assert!(!said.contains("not ours"), "{said}");
    }
}
