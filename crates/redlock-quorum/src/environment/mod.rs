//! The settings that a program and the `redlock` command read from the environment: masters, and
//! the settings that all clients of a prefix must share.
//!
//! There is one list of variables and one reading of each. A prefix or a quarantine that a service
//! and its cron job read in two ways is two holders of one lock.
//!
//! The module is public for the command, and no part of the promised interface.

pub mod duration;
mod file;
pub(crate) mod label;
mod lookup;
pub(crate) mod masters;
pub(crate) mod origins;
pub(crate) mod password;
pub(crate) mod pem;
mod reading;
mod source;
pub(crate) mod variables;

pub use self::file::DEFAULT_FILE;
pub use self::lookup::Environment;
pub use self::masters::{Master, Named};
pub use self::password::PasswordFile;
pub use self::pem::{Pem, PemFile, PemFiles};
pub use self::reading::is_pipe;
pub use self::source::Source;
pub use self::variables::{
    CONFIG, LABEL, MAX_TTL, NODE_TIMEOUT, NODES, NODES_FILE, PASSWORD_FILE, PLAIN, PREFIX,
    QUARANTINE, QUEUE, SETTINGS, Setting, TLS_CA, TLS_CERT, TLS_KEY, TOKEN, USERNAME, Variable,
};
pub use redlock_core::{Conversation, CredentialsProvider, redacted};
