//! Which master is the meeting point of a key, and the requests to its queue.

use redlock_core::{Entry, Exit, Key, Leaving, Resource, SharedQueue};

use super::*;
use crate::waiting::Ask;
use crate::waiting::leaving::fresh_for;

impl Keys {
    /// Returns where the attempt of a caller goes first, or enters the queue. `None` if it does
    /// neither.
    pub(super) fn meeting_of(&self, caller: &Caller, cx: &Context<'_>) -> Option<usize> {
        let place = self.waiters.place(&caller.key);
        match (caller.ask, place) {
            (Ask::All, None) => None,
            // The key is reserved at the master that has called.
            (Ask::Called, Some(place)) if cx.points.may_meet(place, cx.now) => Some(place),
            _ => self.queues_at(&caller.key, place, cx),
        }
    }

    /// Returns the master at which a process with this place queues next. That is the common
    /// meeting point as soon as a queue works there, so a process that has queued elsewhere for a
    /// moment returns.
    pub(super) fn queues_at(
        &self,
        key: &Key,
        place: Option<usize>,
        cx: &Context<'_>,
    ) -> Option<usize> {
        let place = place.filter(|at| cx.points.may_meet(*at, cx.now));
        let meets = self.meeting_point(key, cx);
        let works = meets.is_some_and(|at| self.queue_works(key, at, cx));
        place.filter(|_| !works).or(meets)
    }

    /// Returns where contenders of the key meet: at a master whose queue has not failed, if there is
    /// one.
    pub(super) fn meeting_point(&self, key: &Key, cx: &Context<'_>) -> Option<usize> {
        let avoided = self.broken.avoided(key, cx.points.count(), cx.now);
        cx.points.meeting_point(key, avoided, cx.now)
    }

    /// Returns `true` if processes that wait for the key at this master do so in a queue.
    pub(super) fn queue_works(&self, key: &Key, at: usize, cx: &Context<'_>) -> bool {
        cx.points.has_queue(at) && !self.broken.has(key, at, cx.now)
    }

    /// Returns where contenders of the key meet in a queue.
    pub(super) fn queue_of(&self, key: &Key, cx: &Context<'_>) -> Option<usize> {
        self.meeting_point(key, cx).filter(|at| self.queue_works(key, *at, cx))
    }

    /// Returns the parameters of a caller that waits since `since`.
    pub(super) fn entry(&self, resource: &Resource, since: Instant, cx: &Context<'_>) -> Entry {
        let waited = cx.now.saturating_since(since).as_micros();
        Entry {
            queue: SharedQueue::new(&self.terms.prefix, resource, self.terms.ticket),
            ask: None,
            waited_us: u64::try_from(waited).unwrap_or(u64::MAX),
            reservation_ms: cx.reservation_ms(),
        }
    }

    pub(super) fn give_up_place_in(&mut self, id: WaitingId, at: usize, cx: &mut Context<'_>) {
        if let Some(queue) = self.waiters.queues.get(id) {
            let key = queue.key.clone();
            self.give_up_place(&key, at, cx);
        }
    }

    /// Gives up the place at this master, or a reservation for this process there. The next process
    /// is called.
    pub(super) fn give_up_place(&mut self, key: &[u8], at: usize, cx: &mut Context<'_>) {
        let Some(name) = key.strip_prefix(&self.terms.prefix[..]) else { return };
        let exit = Exit {
            queue: SharedQueue::new(&self.terms.prefix, &name.into(), self.terms.ticket),
            token: None,
            gives_up_place: true,
            reservation_ms: cx.reservation_ms(),
            leaving: Leaving::Undo,
        };
        let ticket = Ticket::Exit(LockId::default());
        self.news.push_back(News::Send(at, Op::leave(key, exit), ticket));
    }

    /// Gives up all places. The processes after this one in the queues are called, and need not wait
    /// for what is reserved for this process.
    pub fn give_up_places(&mut self, cx: &mut Context<'_>) {
        let place = |queue: &waiters::Queue| Some((queue.key.clone(), queue.waiting.place()?));
        let places: Vec<_> = self.waiters.queues.values().filter_map(place).collect();
        for (key, at) in places {
            self.give_up_place(&key, at, cx);
        }
    }

    /// Records that others wait for the key. The next callers of this process query the meeting
    /// point first.
    pub(super) fn others_wait(&mut self, key: &Key, waiters: u32, cx: &mut Context<'_>) {
        if let Some(one) = self.uses.of_mut(key) {
            one.wanted();
            one.waiters = waiters;
        }
        self.others_may_wait(key, cx);
    }

    /// The same, until the meeting point has answered, or has had time to answer.
    pub(super) fn others_may_wait(&mut self, key: &Key, cx: &mut Context<'_>) {
        let queue = self.waiters.enter(key);
        let until = cx.now.saturating_add(fresh_for(cx.fan_out).max(answer_time(cx.fan_out)));
        self.waiters.queues[queue].waiting.others_wait(until);
        self.schedule(queue, cx);
    }
}
