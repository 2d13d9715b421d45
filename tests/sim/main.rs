//! Simulated masters in virtual time.
