//! Recipes: common uses of locks, built from locks.
//!
//! A recipe takes and holds locks by the public API and by nothing below it, so the safety of a
//! lock does not depend on it: a fault in here may cost time, and never makes two holders.

mod collect;
pub(crate) mod lock_all;
pub(crate) mod once;
pub(crate) mod once_guard;
pub(crate) mod reentrant;
pub(crate) mod set;
