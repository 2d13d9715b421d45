//! The public interface on real servers.

mod api;
mod changes;
mod errors;
mod recipes;
mod rejected;
mod status;
mod work;
