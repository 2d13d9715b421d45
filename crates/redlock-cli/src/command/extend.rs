//! `redlock extend`: more time for a lock, by its token.

use anyhow::anyhow;
use redlock_quorum::{ExtendError, Guard, Lease};

use crate::answers;
use crate::args::Extend;
use crate::exit::{Failure, NOT_OURS, UNAVAILABLE};
use crate::global::Global;
use crate::output::Held;
use crate::session::Session;

pub(crate) async fn extend(global: &Global, args: &Extend) -> Result<u8, Failure> {
    let session = Session::with_ttl(global, &args.key, args.ttl)?;
    let outcome = match resume(&session, &args.token).await {
        Ok(guard) => {
            let votes = session.hear_all(&guard).await;
            session.say(guard.resource(), "extended", &votes);
            let printed = Held::new(&guard, session.ttl.get()).print(args.json);
            session.warn_of_margin(&votes);
            // Printed or not, it is extended, and its holder has the token.
            guard.forget();
            printed.map(|()| 0)
        }
        Err(failure) => Err(failure),
    };
    session.close().await;
    outcome
}

/// Proves a lease by an extension.
async fn resume(session: &Session, token: &str) -> Result<Guard, Failure> {
    loop {
        let lease = Lease::new(&session.key, token, session.ttl.get())?;
        match session.redlock.resume(lease).await {
            Err(ExtendError::Invalid(why)) if session.shrinks_to_fit(&why) => {}
            Ok(guard) => return Ok(guard),
            Err(error) => return Err(not_extended(session, error).await),
        }
    }
}

async fn not_extended(session: &Session, error: ExtendError) -> Failure {
    let votes = error.votes().cloned();
    if let Some(votes) = &votes {
        session.say(&session.key, "not extended", votes);
    }
    let said = votes.as_ref().map(answers::said).unwrap_or_default();
    let failure = match error {
        ExtendError::Invalid(why) => why.into(),
        ExtendError::NotOurs { resource, .. } => {
            Failure::new(NOT_OURS, anyhow!("{resource} is not held by this token: {said}"))
        }
        ExtendError::NoQuorum { resource, votes } if votes.is_outbid() => {
            let why = votes.why_outbid();
            Failure::new(UNAVAILABLE, anyhow!("{resource}: not extended, {why}: {said}"))
        }
        ExtendError::NoQuorum { resource, .. } => {
            let why = "too few voting masters answered";
            Failure::new(UNAVAILABLE, anyhow!("{resource}: no quorum, {why}: {said}"))
        }
        ExtendError::TooLate { resource, .. } => {
            let why = "too late, no validity was left";
            Failure::new(UNAVAILABLE, anyhow!("{resource}: extended {why}: {said}"))
        }
        ExtendError::Lost(lost) => Failure::new(NOT_OURS, lost),
        error => Failure::new(UNAVAILABLE, error),
    };
    session.explained(failure, &answers::causes(votes.iter().flatten())).await
}
