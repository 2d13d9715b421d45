//! What the answers of N masters mean for one token: `answer` (what a master said, and whether it
//! counts), `tally` (is the vote decided?), `validity` (until when do we hold?), and `ledger` (what
//! is known of the token on each master), which goes with the token through its whole lifecycle.

pub mod answer;
pub mod ledger;
pub mod tally;
pub mod validity;
