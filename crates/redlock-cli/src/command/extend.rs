//! `redlock extend`: more time for a lock, by its token.

use crate::args::{Extend, Global};
use crate::exit::Failure;
use crate::output::Held;
use crate::session::Session;

pub(crate) async fn extend(global: &Global, args: &Extend) -> Result<u8, Failure> {
    let ttl = args.ttl.unwrap_or_else(|| Session::default_ttl(global));
    let session = Session::new(global, &args.key, Some(ttl))?;
    let outcome = match session.resume(&args.token).await {
        Ok(guard) => {
            session.tell("extended", &session.hear_all(&guard).await);
            let printed = Held::new(&guard, ttl).print(args.json);
            // Printed or not, it is extended, and its holder has the token.
            guard.forget();
            printed.map(|()| 0)
        }
        Err(failure) => Err(failure),
    };
    session.close().await;
    outcome
}
