//! The public interface on real servers.

mod api;
mod changes;
mod errors;
mod recipes;
mod work;
