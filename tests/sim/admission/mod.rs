//! Which masters vote: loss of data, quarantine, `init`, and what a handle notices of them.

mod blind;
mod confirming;
mod doubts;
mod forgetting;
mod freshness;
mod init;
mod init_calls;
mod lists;
mod max_ttl;
mod mixing;
mod quarantine_ends;
mod short_lives;
mod two_inits;
mod uptime;
mod voteless;
mod warnings;
