//! `redlock run --reentrant` under a lock that a `redlock run` around it has: the command runs in
//! this process's place, with that lock.
//!
//! The one around it extends the lock and releases it, and ends the process group of its command when
//! the lock is lost. So this process stays in that group, and there is nothing for it to look after.

use std::io;
use std::os::unix::process::CommandExt;

use anyhow::anyhow;

use crate::args::Run;
use crate::environment::Environment;
use crate::exit::{CANNOT_RUN, Failure, HELD};
use crate::global::Global;
use crate::held::Entry;
use crate::launcher;
use crate::place;
use crate::session::Session;
use crate::signals::Signals;
use crate::stderr;

/// Becomes the command. Returns only if that fails. `said`: the masters' answers about the lock.
pub(crate) async fn enter(
    session: Session,
    global: &Global,
    args: &Run,
    entry: &Entry,
    said: &str,
    mut signals: Signals,
) -> Failure {
    if let Err(stray) = place::is_ended_by(&entry.places) {
        let (key, words) = (&session.key, stray.words());
        let failure =
            Failure::new(HELD, anyhow!("cannot reuse the lock on {key}: {words}: {said}"));
        session.close().await;
        return failure;
    }
    if session.is_verbose {
        stderr::note(&format!(
            "reusing the lock on {}, held by {}: {said}",
            session.key, entry.token
        ));
    }
    let key = session.key.clone();
    session.close().await;
    let cannot = |error: io::Error| {
        let cause = anyhow::Error::new(error).context("the command cannot be started");
        Failure::new(CANNOT_RUN, cause)
    };
    let kept = match signals.keep_back() {
        Ok(kept) => kept,
        Err(error) => return cannot(error),
    };
    if let Some(signal) = signals.come().await {
        return Failure::cancelled(signal, &key, &said);
    }
    let mut command = launcher::entering(&args.words(), kept);
    Environment::entered(global, args, entry).apply_to(&mut command);
    cannot(command.exec())
}
