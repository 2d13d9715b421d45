//! `Timed`: a world in tokio's time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redlock_core::{Clock, Instant};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::outbox::Outbox;
use super::world::World;

/// A world that is settled when it changes and when something is due.
pub(super) struct Timed(Mutex<State>);

pub(super) struct State {
    pub(super) world: World,
    pub(super) clock: Clock,
    /// The task that wakes the world up next, and when.
    timer: Option<(Instant, JoinHandle<()>)>,
}

impl Timed {
    pub(super) fn new(clock: Clock, seed: u64) -> Arc<Self> {
        let mut world = World::new(seed, clock.now());
        world.keep_log();
        Arc::new(Self(Mutex::new(State { world, clock, timer: None })))
    }

    /// No code that holds this lock can panic half-way through a change.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the world, processes all due events, casts and reports it, and sets the timer.
    pub(super) fn change(self: &Arc<Self>, change: impl FnOnce(&mut World, Instant, &mut Outbox)) {
        self.change_state(|state, now, outbox| change(&mut state.world, now, outbox));
    }

    fn change_state(self: &Arc<Self>, change: impl FnOnce(&mut State, Instant, &mut Outbox)) {
        let mut outbox = Outbox::default();
        let mut state = self.lock();
        let now = state.clock.now();
        change(&mut state, now, &mut outbox);
        state.world.settle(now, &mut outbox);
        self.wake_later(&mut state, now);
        drop(state);
        outbox.deliver();
    }

    /// Sets a timer for the next work of the world, unless one rings by then.
    fn wake_later(self: &Arc<Self>, state: &mut State, now: Instant) {
        let Some(due) = state.world.next_due() else { return };
        // The runtime of the last timer may be gone, and the timer with it.
        let set = state.timer.as_ref().is_some_and(|(at, task)| *at <= due && !task.is_finished());
        let Ok(runtime) = Handle::try_current() else { return };
        if set {
            return;
        }
        let (timed, after) = (self.clone(), due.saturating_since(now));
        let task = runtime.spawn(async move {
            tokio::time::sleep(after).await;
            timed.change_state(|state, _, _| state.timer = None);
        });
        if let Some((_, late)) = state.timer.replace((due, task)) {
            late.abort();
        }
    }
}
