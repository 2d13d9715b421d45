//! Keys that are no longer needed are deleted, however their lock ended.

mod cancellation;
mod release;
mod unaccepted;
