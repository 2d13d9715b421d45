//! The parts of one client, and what lies below them.
//!
//! A client consists of parts that do not know each other. Each has private fields, takes inputs
//! with the current instant, and returns what must follow. In reading order: `ids` (the entries of
//! a client, and how a vote names its request), `table`, `context` (what accompanies an
//! input), `view`; then the parts, `masters` and `questions`.

pub mod context;
pub mod ids;
pub mod masters;
pub mod questions;
pub mod table;
pub mod view;
