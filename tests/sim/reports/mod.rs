//! The information for callers and operators: answers, statistics and the log.

mod answers;
pub(crate) mod log;
mod stats;
mod subscribers;
