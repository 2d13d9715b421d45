//! What callers and operators are shown: answers, numbers and the log.

mod answers;
pub(crate) mod log;
mod stats;
