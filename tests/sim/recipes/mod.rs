//! Recipes made of locks.

mod once;
mod reentrant;
mod sets;
mod try_run;
