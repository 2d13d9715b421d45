//! How the driver comes to a runtime, and from one to another.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use super::Driver;
use super::command::Command;
use super::held_lock::{Giver, Told};
use super::slot::{End, Home, Slot, State};
use super::task::Task;
use crate::settings::InvalidRequest;
use redlock_protocol::client::ids::HoldId;

/// How long a driver on another runtime, which might not poll it, has for a turn after the
/// doorbell.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

impl Slot {
    /// Makes sure that a task works on the driver.
    ///
    /// # Errors
    /// [`InvalidRequest::NoRuntime`] when none does and there is no runtime to start one on, and
    /// [`InvalidRequest::Panicked`] when one did until it panicked.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), InvalidRequest> {
        if self.is_running.load(Ordering::SeqCst) {
            return Ok(());
        }
        let runtime = living_runtime();
        let mut state = self.state();
        match &*state {
            State::Running { .. } => Ok(()),
            State::Ended(End { has_panicked: true, .. }) => Err(InvalidRequest::Panicked),
            State::Ended(_) => Ok(()),
            State::Parked(_) => {
                let runtime = runtime.ok_or(InvalidRequest::NoRuntime)?;
                let driver = self.enter(&mut state, Some(Home::of(&runtime)));
                drop(state);
                self.launch(driver, &runtime)
            }
        }
    }

    /// Takes the driver over to this runtime if it has made no turn since there were `turns`:
    /// its own runtime does not poll it.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(crate) fn take_over(self: &Arc<Self>, turns: u64) -> Result<(), InvalidRequest> {
        let runtime = living_runtime().ok_or(InvalidRequest::NoRuntime)?;
        let mut state = self.state();
        let is_resting = matches!(&*state, State::Running { driver: Some(_), .. });
        if !is_resting || self.has_turned(turns) {
            return Ok(());
        }
        let driver = self.enter(&mut state, Some(Home::of(&runtime)));
        drop(state);
        let driver = driver.and_then(|driver| self.work(driver, Driver::leave));
        self.launch(driver.map(|(driver, ())| driver), &runtime)
    }

    /// Makes sure that posted commands without a waiting caller are read, even if the driver's
    /// runtime is not polled but this one is.
    pub(crate) fn ensure_served(self: &Arc<Self>) {
        let is_started = self.start().is_ok();
        if !is_started || !self.is_elsewhere() {
            return;
        }
        if let Some(runtime) = living_runtime() {
            let (slot, turns) = (self.clone(), self.ring());
            runtime.spawn(async move {
                sleep(PATIENCE).await;
                // If the driver has stopped in the meantime, nothing is left to read.
                let _ = slot.take_over(turns);
            });
        }
    }

    /// Connects the masters and hands the driver to a task of `runtime`. Without a driver, the
    /// driver has ended in the meantime.
    fn launch(
        self: &Arc<Self>,
        driver: Option<Box<Driver>>,
        runtime: &Handle,
    ) -> Result<(), InvalidRequest> {
        let connected = driver.and_then(|driver| self.work(driver, Driver::connect));
        let Some((driver, ())) = connected else { return Err(InvalidRequest::Panicked) };
        if let Some(task) = self.rest(driver) {
            // A runtime that was shut down in the meantime immediately drops the task, which parks
            // the driver.
            drop(runtime.spawn(Task::new(task, self.clone(), runtime)));
        }
        Ok(())
    }
}

/// Returns the runtime around the caller, unless it was shut down while its blocking threads still
/// run.
pub(crate) fn living_runtime() -> Option<Handle> {
    let runtime = Handle::try_current().ok()?;
    let probe = Arc::new(());
    let held = probe.clone();
    let task = runtime.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    // A runtime that was shut down immediately drops spawned tasks.
    let lives = Arc::strong_count(&probe) > 1;
    task.abort();
    lives.then_some(runtime)
}

/// Outside a runtime nothing can be started, so the next use of the handle continues the driver.
impl Giver for Slot {
    fn tell(self: Arc<Self>, hold: HoldId, told: Told) {
        self.post_here(match told {
            Told::Release => Command::Release { hold, reply: None },
            Told::Forget => Command::Forget { hold },
            Told::Accepted => Command::Accepted { hold },
        });
        self.ensure_served();
    }

    fn is_forked(&self) -> bool {
        Self::is_forked(self)
    }
}
