//! One holder at a time under every fault, and a checker that notices if there are two.

mod checker_catches_bugs;
pub(crate) mod contenders;
mod faults;
pub(crate) mod locker;
mod mutual_exclusion;
mod traffic;
