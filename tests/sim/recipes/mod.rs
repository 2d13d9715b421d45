//! Recipes made of locks.

mod election;
mod once;
mod reentrant;
mod semaphore;
mod sets;
mod try_run;
mod watch;
