//! Requests to masters, and votes that are known without one.

use std::collections::VecDeque;

use redlock_core::{Answer, Instant, Op, Verb, Vote};

use super::effects::{Effect, Effects};
use super::ids::Ticket;
use super::view::{Purpose, Voters};
use crate::master_set::MasterSet;

/// Sends the same request to each of `masters`, also to masters that do not vote. Masters that
/// cannot hold a key of ours receive nothing. Their votes are known, and are counted after the route
/// that caused them.
pub(super) fn send(
    op: Op,
    masters: MasterSet,
    ticket: Ticket,
    now: Instant,
    voters: &dyn Voters,
    (known, effects): (&mut VecDeque<Vote>, &mut Effects),
) {
    let purpose = purpose(&op, ticket);
    let mut sent = masters;
    for master in masters.without(voters.voting().without(voters.refused(purpose))).iter() {
        if let Some(cause) = voters.obstacle(master, purpose, now) {
            sent.remove(master);
            known.push_back(Vote::new(master, ticket.pack(), now, Answer::unsent(cause)));
        }
    }
    if !sent.is_empty() {
        effects.push(Effect::Send { masters: sent, op, ticket, at: now });
    }
}

/// A held lease is extended and released whatever the recorded sets are.
fn purpose(op: &Op, ticket: Ticket) -> Purpose {
    match (ticket, op.verb()) {
        (Ticket::Attempt(_), Verb::Resume { .. } | Verb::Extend { .. }) => Purpose::Resume,
        (Ticket::Attempt(_), _) => Purpose::Acquire,
        _ => Purpose::Other,
    }
}
