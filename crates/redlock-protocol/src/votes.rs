//! Votes: what the answers of N masters mean for one token. `answer` is a master's answer and
//! whether it is valid, `last_answer` is what a master last answered, `tally` decides the vote, `validity` is the time until which we hold the
//! key, and `ledger` is the state of the token on each master. The ledger accompanies the token
//! through its whole lifecycle.

pub mod answer;
pub mod last_answer;
pub mod ledger;
pub mod tally;
pub mod validity;
