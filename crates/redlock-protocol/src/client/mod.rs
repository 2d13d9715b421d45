//! The parts of one client, and what lies below them.
//!
//! A client consists of parts that do not know each other. Each part has private fields, takes
//! inputs with the current instant, and returns the consequences. In reading order: `ids` (the
//! entries of a client, and the mapping from votes to requests), `table`, `callers`, `line` (requests
//! that wait for their turn), `timers`, `draws` (random choices), `derived`, `context`, `view`, then
//! the parts `masters`, `key`, `locks` and `questions`.

pub mod callers;
pub mod context;
pub mod derived;
pub mod draws;
pub mod ids;
pub mod key;
pub mod line;
pub mod locks;
pub mod masters;
pub mod questions;
pub mod table;
pub mod timers;
pub mod view;
