//! Sends releases again that masters did not acknowledge, and gives some up.

use super::*;
use crate::client::effects::Said;
use crate::token::lifecycle::Event;

impl Locks {
    pub(super) fn left_unacknowledged(&mut self, id: LockId, master: usize, cx: &mut Context<'_>) {
        if let Some(oldest) = self.unacknowledged[master].left(id)
            && let Some(release) = self.table.get(oldest).and_then(|lock| lock.machine.release())
        {
            let (left, expiry) = (release.left(master, cx.now), release.expiry());
            self.unacknowledged[master].give_up(left, expiry, cx.now);
            self.happens(oldest, Event::GivenUp(master), cx);
        }
        self.ask_again(master, false, cx);
    }

    /// Sets the alarm for the next batch. The caller that closes the client also waits for keys
    /// that expire in the meantime.
    pub fn ask_again(&mut self, master: usize, is_soon: bool, cx: &mut Context<'_>) {
        let now = cx.moment.now();
        let unacknowledged = &mut self.unacknowledged[master];
        if let Some(at) = unacknowledged.alarm(is_soon, cx.is_closing, cx.draws, now) {
            cx.timers.enter(at, Due::Unacknowledged(master));
        }
    }

    /// Repeats releases at `master`, whose alarm has rung.
    pub fn repeat_due(&mut self, master: usize, cx: &mut Context<'_>) {
        let Some(round) = self.unacknowledged[master].begin(cx.now) else { return };
        if round.given_up > 0 {
            cx.effects.say(Said::Abandoned(master, round.given_up));
        }
        // Releases whose keys have expired are removed.
        for id in self.unacknowledged[master].take() {
            let Some(step) = self.decide(id, Event::Expired, cx) else { continue };
            let release = self.table.get(id).and_then(|lock| lock.machine.release());
            if release.is_some_and(|release| release.has_failed(master)) {
                self.unacknowledged[master].keep(id);
            }
            self.carry_out(id, step, cx);
        }
        if cx.voters.is_up(master) {
            self.send_batch(master, cx);
        }
        self.ask_again(master, round.keeps_up, cx);
    }

    /// Repeats the unacknowledged releases on a master that can be reached again.
    pub fn reached(&mut self, master: usize, cx: &mut Context<'_>) {
        self.unacknowledged[master].reached();
        self.send_batch(master, cx);
        self.ask_again(master, true, cx);
    }

    /// Repeats a batch of unacknowledged releases at `master`.
    fn send_batch(&mut self, master: usize, cx: &mut Context<'_>) {
        for id in self.unacknowledged[master].batch() {
            self.happens(id, Event::Retry(master), cx);
        }
    }
}
