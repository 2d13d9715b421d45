//! One connection to a real server: its address, its replies and its end.

mod certificates;
mod connections;
mod credentials;
pub(crate) mod driven;
mod features;
mod replies;
mod tls;
mod urls;
