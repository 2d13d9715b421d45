#![doc = "A distributed lock over N independent Redis masters."]

pub mod blocking;
mod builder;
mod claim;
mod driver;
mod error;
mod farewell;
mod guard;
mod lease;
mod mailbox;
mod redlock;
mod request;
mod retry;
mod round;
mod settings;
mod status;
mod tally;
mod validity;
mod votes;

pub use builder::RedlockBuilder;
pub use error::{AcquireError, ExtendError, Owed, ReleaseError, RunError, Unreleased};
pub use guard::{Ended, FencingToken, Guard, Hold, Loss, Lost, Why};
pub use lease::Lease;
pub use redlock::Redlock;
pub use redlock_core::{
    Cause, Clock, Instant, InvalidLabel, InvalidNode, InvalidResource, InvalidTls, InvalidToken,
    InvalidTtl, InvalidUrl, Node, NodeState, Resource, Tls, Token,
};
pub use request::LockRequest;
pub use settings::{BuildError, InvalidRequest};
pub use status::{NodeHolds, NodeStatus, State, Status};
pub use votes::{NodeVote, Said, Votes};
