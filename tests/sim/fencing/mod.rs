//! The order of fencing tokens.

mod broken_tokens;
mod shares;
mod tokens;
