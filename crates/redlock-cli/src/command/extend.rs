//! `redlock extend`: more time for a lock, by its token.

use crate::args::Extend;
use crate::exit::Failure;
use crate::global::Global;
use crate::output::Held;
use crate::session::Session;

pub(crate) async fn extend(global: &Global, args: &Extend) -> Result<u8, Failure> {
    let session = Session::with_ttl(global, &args.key, args.ttl)?;
    let outcome = match session.resume(&args.token).await {
        Ok(guard) => {
            let votes = session.hear_all(&guard).await;
            session.say("extended", &votes);
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
