//! One token: `lifecycle` decides which stage follows which; `attempt`, `lease` and `release` are
//! the stages.

pub mod attempt;
pub mod lease;
pub mod lifecycle;
pub mod release;
