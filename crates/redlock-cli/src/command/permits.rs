//! `redlock status KEY --permits N`: who holds the permits of a semaphore.

use std::ffi::OsStr;

use crate::answers;
use crate::exit::Failure;
use crate::global::Global;
use crate::output::{self, PermitReport};
use crate::permits;
use crate::session::Session;

pub(crate) async fn permits(
    global: &Global,
    key: &OsStr,
    permits: u32,
    as_json: bool,
) -> Result<u8, Failure> {
    let session = Session::new(global, key)?;
    let semaphore = session.semaphore(permits);
    semaphore.check().map_err(Failure::usage)?;
    let permitted = semaphore.status().await;
    let printed = match as_json {
        true => output::json(&PermitReport::new((&session.key).into(), &permitted)),
        false => output::line(&permits::people(&session.key, &permitted)),
    };
    let judged = match permits::judge(&session.key, &permitted) {
        Ok(code) => Ok(code),
        Err(failure) => {
            let nodes = permitted.slots.iter().flat_map(|slot| &slot.nodes);
            Err(session.explained(failure, &answers::causes(nodes)).await)
        }
    };
    session.close().await;
    printed?;
    judged
}
