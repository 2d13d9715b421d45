//! The `redlock` command.
fn main() {}
