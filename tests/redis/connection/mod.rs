//! One connection to a real server: its address, its replies and its end.

mod connections;
pub(crate) mod driven;
mod replies;
mod tls;
mod urls;
