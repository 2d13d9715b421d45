//! `redlock acquire`: acquires the lock and leaves it to expire.

use anyhow::anyhow;
use redlock_quorum::{Guard, GuardSet};

use crate::args::Acquire;
use crate::command::release;
use crate::exit::{CANNOT_PRINT, Failure};
use crate::global::Global;
use crate::output::{self, Held, STDOUT_CLOSED};
use crate::session::Session;
use crate::signals::Signals;

pub(crate) async fn acquire(global: &Global, args: &Acquire) -> Result<u8, Failure> {
    let session = Session::acquiring(global, std::slice::from_ref(&args.key), args.ttl)?;
    let mut signals = Signals::new()?;
    let outcome = match session.acquire(args.patience, args.wait, None, &mut signals).await {
        Ok(locks) => hand_over_all(&session, locks, args.json, &mut signals).await,
        Err(failure) => Err(failure),
    };
    session.close().await;
    outcome
}

/// There is one: a command that acquires by hand has one key.
async fn hand_over_all(
    session: &Session,
    locks: GuardSet,
    as_json: bool,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    for guard in locks {
        hand_over(session, guard, as_json, signals).await?;
    }
    Ok(0)
}

/// Prints the token, and leaves the lock to its reader. Without the printed token, no process could
/// use or release the lock, so it is released if printing fails. It is also released if a signal
/// arrives first.
async fn hand_over(
    session: &Session,
    guard: Guard,
    as_json: bool,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let heard = tokio::select! {
        biased;
        signal = signals.next() => Err(Failure::cancelled(signal, &session.key, &guard.votes())),
        votes = session.hear_all(&guard) => Ok(votes),
    };
    let printed = heard.and_then(|votes| {
        session.say(guard.resource(), "acquired", &votes);
        print(session, &guard, as_json)?;
        session.warn_of_margin(&votes);
        Ok(())
    });
    let Err(failure) = printed else {
        guard.forget();
        return Ok(0);
    };
    let key = &session.key;
    Err(match guard.release().await {
        Ok(()) => failure.with_hint("the lock was released"),
        Err(error) => {
            let why = release::words(&error);
            failure.with_hint(&format!("{key} may stay locked until its TTL expires: {why}"))
        }
    })
}

fn print(session: &Session, guard: &Guard, as_json: bool) -> Result<(), Failure> {
    if !output::has_reader() {
        return Err(Failure::new(CANNOT_PRINT, anyhow!(STDOUT_CLOSED)));
    }
    Held::new(guard, session.ttl.get()).print(as_json)
}
