//! Keys that are no longer needed are deleted, however their lock or its process ended.

mod cancellation;
mod ends;
mod order;
mod relay;
mod shutdown;
mod silence;
