//! One token: `lifecycle` decides the order of the stages `attempt`, `lease` and `release`.

pub mod attempt;
pub mod lease;
pub mod lifecycle;
pub mod release;
