//! What locks are taken for, made of locks.
//!
//! A recipe takes and holds locks by the public API and by nothing below it, so it adds nothing to
//! what keeps a lock safe: a fault in here may cost time, and never makes two holders.

mod collect;
pub(crate) mod lock_all;
pub(crate) mod once;
pub(crate) mod once_guard;
pub(crate) mod reentrant;
pub(crate) mod set;
