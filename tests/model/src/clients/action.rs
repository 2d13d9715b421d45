//! The possible next actions and their effects.

use super::part::Part;
use super::process::Caller;
use super::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Ask(usize),
    Cancel(usize, usize),
    Return(usize, usize),
    Arrive(usize, usize),
    Push(usize, usize),
    /// A connection breaks, after so many of its requests were carried out.
    Break(usize, usize, usize),
    Tick(usize),
    Stop(usize),
    Close(usize),
}

impl World {
    /// All that may happen next.
    pub(crate) fn actions(&self, part: &Part, actions: &mut Vec<Action>) {
        let is_quiet = self.is_quiet();
        for (own, process) in self.processes.iter().enumerate() {
            if process.is_stopped {
                continue;
            }
            for (master, link) in process.links.iter().enumerate() {
                if !link.requests.is_empty() {
                    actions.push(Action::Arrive(own, master));
                }
                if !link.pushes.is_empty() {
                    actions.push(Action::Push(own, master));
                }
                if self.left.breaks > 0 && !link.requests.is_empty() {
                    actions.extend([0, 1].map(|executed| Action::Break(own, master, executed)));
                }
            }
            let is_awaited = process.waits() || !is_quiet;
            let may_tick = self.left.ticks > 0 && (is_quiet || self.left.late > 0);
            if may_tick && is_awaited && process.due.is_some() {
                actions.push(Action::Tick(own));
            }
            self.caller_actions(part, own, actions);
        }
    }

    fn caller_actions(&self, part: &Part, own: usize, actions: &mut Vec<Action>) {
        let process = &self.processes[own];
        if process.is_closed {
            return;
        }
        if process.callers.len() < part.asks[own] && process.open() < part.at_once {
            actions.push(Action::Ask(own));
        }
        for (caller, state) in process.callers.iter().enumerate() {
            match state {
                Caller::Waits(_) if self.left.cancels > 0 => {
                    actions.push(Action::Cancel(own, caller));
                }
                Caller::Holds(..) => actions.push(Action::Return(own, caller)),
                _ => {}
            }
        }
        if self.left.stops > 0 {
            actions.push(Action::Stop(own));
        }
        if self.left.closes > 0 {
            actions.push(Action::Close(own));
        }
    }

    /// Takes an action that was offered.
    pub(crate) fn take(&mut self, part: &Part, action: Action) {
        match action {
            Action::Ask(own) => self.with(part, own, |process, now| process.ask(part, now)),
            Action::Cancel(own, caller) => {
                self.left.cancels -= 1;
                self.with(part, own, |process, now| process.cancel(part, caller, now));
            }
            Action::Return(own, caller) => {
                self.with(part, own, |process, now| process.give_back(part, caller, now));
            }
            Action::Arrive(own, master) => self.arrive(part, own, master),
            Action::Push(own, master) => self.push(part, own, master),
            Action::Break(own, master, executed) => {
                self.left.breaks -= 1;
                self.cut(part, own, master, executed);
            }
            Action::Tick(own) => {
                self.left.ticks -= 1;
                self.left.late -= u8::from(!self.is_quiet());
                self.tick(part, own);
            }
            Action::Stop(own) => {
                self.left.stops -= 1;
                self.stop(own);
            }
            Action::Close(own) => {
                self.left.closes -= 1;
                self.with(part, own, |process, now| process.close(part, now));
            }
        }
    }
}
