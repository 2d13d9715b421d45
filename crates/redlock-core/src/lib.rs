//! One resource on one Redis master: the part of a Redlock below the quorum.
//!
//! This crate defines the types that every other crate uses ([`Resource`], [`Token`], [`Ttl`],
//! [`Vote`]), the interface between a quorum and a master ([`Node`]), and its implementation for a
//! real Redis ([`RedisNode`]). Users of the lock depend on `redlock-quorum`, which re-exports the
//! parts they need.
//!
//! When a majority of masters accept one [`Ballot`], the lock gets a [`FencingToken`]. A single
//! master reports only whether it accepted the ballot.
//!
//! [`admission`] defines the record by which a master that lost its data is kept from voting.
//!
//! This crate does not provide mutual exclusion. If a master fails, its locks are gone.
//! `redlock-quorum` adds the majority of masters and the order of tokens.

//! # Features
//!
//! * `redis` (default): [`RedisNode`], and with it sockets, the client crate and tokio. Without it
//!   only the values and the seam are here.
//! * `tls` (default): `rediss://` URLs and certificates. Without it they are refused.
//! * `serde`: [`FencingToken`] can be serialized and deserialized, as a number. Off by default.

pub mod admission;
mod ballot;
mod cause;
mod clock;
pub mod commands;
pub mod duration;
mod facts;
mod key;
mod lists;
mod mark;
mod node;
mod not_admitted;
mod numbers;
mod op;
#[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only a real master needs it"))]
mod packed;
pub mod printable;
#[cfg(feature = "redis")]
mod redis;
mod reservation;
mod resource;
pub mod server_error;
pub mod shared_queue;
mod slot;
mod token;
mod ttl;
mod vote;

pub use ballot::{Ballot, Balloted, Bid, FencingToken, InvalidFencingToken, Member};
pub use cause::{Cause, NoConnection, TlsFault};
pub use clock::{Clock, Instant};
pub use facts::{Facts, Role, Unread};
pub use key::Key;
pub use lists::{ListDoubt, ListWarning, Lists};
pub use mark::{Mark, Marked};
pub use node::Node;
pub use not_admitted::{NotAdmitted, WhyNot};
pub use op::{Op, Verb};
#[cfg(feature = "redis")]
#[doc(hidden)]
pub use redis::{Conversation, redacted};
#[cfg(feature = "redis")]
pub use redis::{
    Credentials, CredentialsProvider, InvalidNode, InvalidTls, InvalidUrl, RedisNode, RedisSetup,
    Tls,
};
pub use reservation::{InvalidQueueTicket, QueueTicket, Reservation};
pub use resource::{InvalidResource, Resource};
pub use shared_queue::{Call, Entry, Exit, Leaving, Queued, SharedQueue};
pub use slot::{Events, NodeEvent, Sink, VoteSlot};
pub use token::{InvalidLabel, InvalidToken, Label, Token};
pub use ttl::{InvalidTtl, Ttl};
pub use vote::{Answer, Verdict, Vote};
