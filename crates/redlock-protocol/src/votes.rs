//! Votes: the meaning of the answers of N masters for one token: `answer` (a master's answer, and
//! whether it counts), `tally` (is the vote decided?), `validity` (until when do we hold?), and
//! `ledger` (the state of the token on each master), which goes with the token through its whole
//! lifecycle.

pub mod answer;
pub mod ledger;
pub mod tally;
pub mod validity;
