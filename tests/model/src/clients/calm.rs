//! Is every caller that waits served, once nothing fails any longer?
//!
//! Each message arrives immediately, each holder returns its lock immediately, and each alarm is
//! fired when it is due.

use std::time::Duration;

use super::part::Part;
use super::world::World;

/// More steps than any of these stories takes.
const STEPS_MAX: usize = 10_000;
/// Later alarms have nothing to do with the key.
const LATER: Duration = Duration::from_secs(30);

impl World {
    /// Whether each caller is served, and the key is never idle for longer than the part allows.
    pub(crate) fn serves_all(&self, part: &Part) -> bool {
        let mut world = self.clone();
        let idle = Duration::from_millis(part.idle);
        let mut served_at = world.now;
        for _ in 0..STEPS_MAX {
            world.deliver(part);
            if let Some((own, caller)) = world.holder() {
                world.with(part, own, |process, now| process.give_back(part, caller, now));
                served_at = world.now;
                continue;
            }
            if !world.processes.iter().any(|process| process.waits()) {
                return true;
            }
            let Some(next) = world.next() else { return false };
            let (now, due) = (world.now, world.processes[next].due);
            world.tick(part, next);
            let is_stuck = world.now == now && world.processes[next].due == due;
            if is_stuck || world.now.saturating_since(served_at) > idle {
                return false;
            }
        }
        false
    }

    fn deliver(&mut self, part: &Part) {
        while let Some((own, master)) = self.first_message() {
            if self.processes[own].links[master].requests.is_empty() {
                self.push(part, own, master);
            } else {
                self.arrive(part, own, master);
            }
        }
    }

    fn first_message(&self) -> Option<(usize, usize)> {
        self.processes.iter().enumerate().find_map(|(own, process)| {
            let is_used =
                |link: &super::process::Link| !(link.requests.is_empty() && link.pushes.is_empty());
            Some((own, process.links.iter().position(is_used)?))
        })
    }

    fn holder(&self) -> Option<(usize, usize)> {
        let running = self.processes.iter().enumerate().filter(|(_, one)| !one.is_stopped);
        running.into_iter().find_map(|(own, process)| Some((own, process.holder()?)))
    }

    /// The process with the next alarm.
    fn next(&self) -> Option<usize> {
        let due = self.processes.iter().enumerate().filter_map(|(own, one)| Some((one.due?, own)));
        let soon = due.filter(|(due, _)| *due < self.now.saturating_add(LATER));
        soon.min().map(|(_, own)| own)
    }
}
