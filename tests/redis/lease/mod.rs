//! A lease on real servers: extended, lost, handed to another handle, and left by its runtime.

mod idle;
mod keeper;
mod late;
mod leases;
mod loss;
mod runtimes;
