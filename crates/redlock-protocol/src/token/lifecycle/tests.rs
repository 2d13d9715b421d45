//! One token, from its first request to its last release.

mod events;
mod orders;
mod stages;

use super::*;
