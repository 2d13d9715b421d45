//! The public interface on real servers.

mod api;
mod errors;
mod recipes;
mod work;
