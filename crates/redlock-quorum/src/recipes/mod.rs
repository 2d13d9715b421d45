//! Recipes: common uses of locks, built from locks.
//!
//! A recipe acquires and holds locks only through the public API, so the safety of a lock does not
//! depend on it. A bug in a recipe may cost time, but never creates two holders.

mod collect;
pub(crate) mod election;
pub(crate) mod lock_all;
pub(crate) mod once;
pub(crate) mod once_guard;
pub(crate) mod permit;
pub(crate) mod reentrant;
pub(crate) mod reentrant_guard;
pub(crate) mod semaphore;
pub(crate) mod set;
mod slots;
pub(crate) mod watch;
