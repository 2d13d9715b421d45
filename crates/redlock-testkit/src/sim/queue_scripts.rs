//! The decisions of the scripts about a queue. The scripts themselves have the same rules in Lua, and
//! the conformance tests show that they do.

use redlock_core::{
    Answer, Call, Entry, Exit, Leaving, QueueTicket, Queued, Reservation, SharedQueue, Token,
    Verdict,
};

use super::meeting::Meeting;
use super::tickets::Tickets;

/// The value of a key. The inner `None` means that it is not a string.
type Found = Option<Vec<u8>>;

fn is(found: &Found, value: &str) -> bool {
    found.as_deref() == Some(value.as_bytes())
}

fn is_for(found: &Found, ticket: Option<QueueTicket>) -> bool {
    is(found, &Reservation { ticket }.to_string())
}

fn is_reservation(found: &Found) -> bool {
    found.as_deref().is_some_and(Reservation::is_one)
}

impl Tickets {
    /// Carries out the script on an entry.
    pub fn enter(&mut self, master: &mut dyn Meeting, entry: &Entry) -> Answer {
        self.expire(master);
        let (ticket, found) = (entry.queue.ticket(), master.found().map(|(found, _)| found));
        let is_for_us = found.as_ref().is_some_and(|found| is_for(found, Some(ticket)));
        let may_take = is_for_us || found.is_none() && self.waiting.is_empty();
        if let Some(ask) = entry.ask.as_ref().filter(|_| may_take) {
            return self.take(master, ticket, ask);
        }
        if !is_for_us {
            self.stand(master.time_us(), ticket, entry.waited_us);
        }
        if found.is_none() {
            match (self.first(master, Some(ticket)), &entry.ask) {
                (Some(next), Some(ask)) if next == ticket => return self.take(master, next, ask),
                (Some(next), _) if next != ticket => {
                    self.hand_to(master, next, entry.reservation_ms);
                }
                _ => {}
            }
        }
        refused(master).with_queued(Queued { waiters: self.len(), rank: self.rank(ticket) })
    }

    /// Carries out the script on an exit.
    pub fn leave(&mut self, master: &mut dyn Meeting, exit: &Exit) -> Answer {
        self.expire(master);
        let found = master.found().map(|(found, _)| found);
        let ours = found.as_ref().zip(exit.token.as_ref());
        let is_ours = ours.is_some_and(|(found, token)| is(found, token.as_str()));
        let own = exit.gives_up_place.then(|| exit.queue.ticket());
        let was_first = self.waiting.first().is_some_and(|(_, first)| Some(*first) == own);
        self.waiting.retain(|(_, ticket)| Some(*ticket) != own);
        let is_free = is_ours
            || found
                .as_ref()
                .is_none_or(|found| is_for(found, None) || own.is_some() && is_for(found, own));
        if is_free
            && exit.leaving != Leaving::Open
            && let Some(next) = self.first(master, None)
        {
            self.hand_to(master, next, exit.reservation_ms);
            if let Some((_, second)) = self.waiting.first() {
                master.tell(*second, Call::Next);
            }
            return left(is_ours, 1 + self.len());
        }
        if is_free && found.is_some() {
            master.delete();
        }
        let is_anothers = !is_free && !found.as_ref().is_some_and(is_reservation);
        if exit.leaving == Leaving::Open || exit.leaving == Leaving::Done && is_anothers {
            if let Some((_, head)) = self.waiting.first() {
                master.tell(*head, Call::Try);
            }
        } else if was_first
            && !is_free
            && let Some(next) = self.first(master, None)
        {
            // Only the first waiter watches the key. A holder that knows of no waiter notifies
            // none.
            master.tell(next, if is_anothers { Call::Try } else { Call::Next });
        }
        left(is_ours, self.len())
    }

    fn expire(&mut self, master: &dyn Meeting) {
        if self.is_over(master.time_us()) {
            self.waiting.clear();
        }
    }

    fn take(
        &mut self,
        master: &mut dyn Meeting,
        ticket: QueueTicket,
        (token, px): &(Token, u64),
    ) -> Answer {
        master.set(token.as_str(), *px);
        self.remove(ticket);
        Answer::granted().with_queued(Queued { waiters: self.len(), rank: None })
    }

    /// Returns the first ticket that listens, or is `own`. Drops the tickets before it.
    fn first(&mut self, master: &dyn Meeting, own: Option<QueueTicket>) -> Option<QueueTicket> {
        for _ in 0..SharedQueue::DROPS_MAX {
            let (_, ticket) = *self.waiting.first()?;
            if Some(ticket) == own || master.listens(ticket) {
                return Some(ticket);
            }
            self.remove(ticket);
        }
        None
    }

    fn hand_to(&mut self, master: &mut dyn Meeting, to: QueueTicket, px: u64) {
        master.tell(to, Call::Go);
        self.remove(to);
        master.set(&Reservation { ticket: Some(to) }.to_string(), px);
    }
}

/// Carries out the script that takes a free or reserved key.
pub fn take(master: &mut dyn Meeting, token: &str, px: u64) -> Answer {
    match master.found() {
        Some((found, _)) if !is_reservation(&found) => refused(master),
        _ => {
            master.set(token, px);
            Answer::granted()
        }
    }
}

/// Carries out the script that replaces a token by a reservation.
pub fn reserve(master: &mut dyn Meeting, token: &str, px: u64) -> Answer {
    match master.found() {
        Some((found, _)) if is(&found, token) => {
            master.set(Reservation::PREFIX, px);
            Answer::granted()
        }
        _ => Answer::new(Verdict::NotOurs),
    }
}

fn refused(master: &dyn Meeting) -> Answer {
    match master.found() {
        None => Answer::new(Verdict::Free),
        Some((found, left)) => Answer::held(found.as_deref(), Some(left)),
    }
}

fn left(was_ours: bool, waiters: u32) -> Answer {
    let verdict = if was_ours { Verdict::Granted } else { Verdict::NotOurs };
    Answer::new(verdict).with_queued(Queued { waiters, rank: None })
}
