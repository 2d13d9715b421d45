//! Recipes made of locks.

mod election;
mod once;
mod overlapping_sets;
mod reentrant;
mod semaphore;
mod semaphore_faults;
mod sets;
mod try_run;
mod watch;
