//! `redlock acquire`: take the lock and leave it to expire.

use redlock_quorum::Guard;

use crate::args::{Acquire, Global};
use crate::exit::Failure;
use crate::output::Held;
use crate::session::Session;
use crate::signals::Signals;

pub(crate) async fn acquire(global: &Global, args: &Acquire) -> Result<u8, Failure> {
    let ttl = args.ttl.unwrap_or_else(|| Session::default_ttl(global));
    let session = Session::new(global, &args.key, Some(ttl))?;
    let mut signals = Signals::new()?;
    let wait = args.patience.over(args.wait);
    let outcome = match session.acquire(wait, None, &mut signals).await {
        Ok(guard) => hand_over(&session, guard, args.json, &mut signals).await,
        Err(failure) => Err(failure.held_as(args.patience.held_code)),
    };
    session.close().await;
    outcome
}

/// Prints the token and gives the lock away to whoever reads it. Nobody could use or release a
/// lock whose token was not printed, so it is released then; and also when a signal comes first.
async fn hand_over(
    session: &Session,
    guard: Guard,
    as_json: bool,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let heard = tokio::select! {
        biased;
        signal = signals.next() => Err(Failure::cancelled(signal, &session.key)),
        votes = session.hear_all(&guard) => Ok(votes),
    };
    let printed = heard.and_then(|votes| {
        session.tell("acquired", &votes);
        Held::new(&guard, session.ttl).print(as_json)
    });
    match printed {
        Ok(()) => guard.forget(),
        // What is told is the failure itself; that of the release shows as masters that may keep
        // the key.
        Err(_) => drop(guard.release().await),
    }
    printed.map(|()| 0)
}
