//! The possible next actions and their effects.

use redlock_protocol::token::lifecycle::Stage;

use super::contender::Lock;
use super::driver::FIRST;
use super::part::Part;
use super::queue::MEETING_POINT;
use super::wire::{Done, Number, Request};
use super::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Tick,
    Begin(usize, Number),
    /// A master executes the next request of a contender, or its next command. The contender reads
    /// the reply immediately.
    Execute(usize, usize),
    /// The same, and the reply is late, by a tick at least.
    ExecuteLate(usize, usize),
    /// A contender reads a late reply.
    Deliver(usize, usize),
    Break(usize, usize),
    TimeOut(usize),
    /// An attempt is abandoned, or a lease released.
    Release(usize),
    ReleaseAgain(usize, u8, usize),
    Extend(usize),
    /// A lease is released, with reservations for the next contender.
    Leave(usize),
    /// A reservation ends.
    Lapse(usize),
    /// Masters that refused are queried again.
    TakeAgain(usize),
    /// A lease passes to the next caller of its contender.
    HandOn(usize),
    /// A contender takes over the lease that was given away.
    Resume(usize, Number),
    /// A request of its first holder sets the key.
    Plant(usize),
    Propose(usize, Number),
    /// A mutant renews a key.
    Renew(usize, usize),
    /// The clock of a master gains a tick.
    Gain(usize),
    /// The clock of a contender loses a tick.
    Lose(usize),
    Vanish(usize),
    Forget(usize),
    Learn(usize, usize),
    /// The score of the second master is read for the floor of the first.
    ReadFloor(usize, usize),
    Admit(usize),
}

impl World {
    /// All that may happen next.
    pub(crate) fn actions(&self, part: &Part, actions: &mut Vec<Action>) {
        for own in 0..self.contenders.len() {
            self.contender_actions(part, own, actions);
            for master in 0..part.masters {
                self.link_actions(part, own, master, actions);
            }
        }
        if self.now < part.horizon {
            actions.push(Action::Tick);
        }
        if self.left.slips > 0 && self.now > 0 {
            self.clock_actions(part, actions);
        }
        self.resume_actions(part, actions);
        self.queue_actions(part, actions);
        self.loss_actions(part, actions);
    }

    fn contender_actions(&self, part: &Part, own: usize, actions: &mut Vec<Action>) {
        let contender = &self.contenders[own];
        match contender.open().map(|lock| (lock.machine.stage(), lock.proposes)) {
            None if self.may_begin(part, own) && part.ballots == 0 => {
                actions.push(Action::Begin(own, 0));
            }
            None if self.may_begin(part, own) => {
                let numbers = 1..=part.ballots;
                let is_allowed =
                    |number: &Number| part.numbers.get(own).is_none_or(|one| one == number);
                actions.extend(numbers.filter(is_allowed).map(|one| Action::Begin(own, one)));
            }
            Some((Stage::Attempt(_), proposes)) => {
                if self.left.cancels > 0 {
                    actions.extend([Action::TimeOut(own), Action::Release(own)]);
                }
                if proposes && self.left.second > 0 {
                    actions.extend((1..=part.ballots).map(|number| Action::Propose(own, number)));
                }
            }
            Some((Stage::Lease(_), _)) => {
                let is_holder = contender.is_holder(contender.clock(part, self.now));
                if part.releases {
                    actions.push(Action::Release(own));
                }
                if self.left.hand_overs > 0 {
                    actions.push(Action::HandOn(own));
                }
                if self.left.extensions > 0 && is_holder {
                    actions.push(Action::Extend(own));
                }
            }
            _ => {}
        }
        for lock in &contender.locks {
            let masters = 0..part.masters;
            let failed = masters.filter(|master| self.has_failed(part, own, lock, *master));
            actions.extend(failed.map(|master| Action::ReleaseAgain(own, lock.id, master)));
        }
    }

    /// Contenders with as many attempts are alike: the first of them begins first.
    fn may_begin(&self, part: &Part, own: usize) -> bool {
        let begun = self.contenders[own].begun;
        if begun == part.attempts[own] {
            return false;
        }
        let Some(before) = own.checked_sub(1) else { return true };
        let open = self.contenders[before].open();
        let is_asking =
            open.is_some_and(|lock| lock.is_attempt() && !(lock.proposes && part.revives()));
        let has_begun = self.contenders[before].begun > 0 || self.left.resumes < part.resumes;
        let is_turn = !part.by_turns || has_begun && !is_asking;
        let is_alike =
            part.attempts[own] == part.attempts[before] && part.enters(own) == part.enters(before);
        is_turn && (!is_alike || self.contenders[before].begun > begun)
    }

    fn link_actions(&self, part: &Part, own: usize, master: usize, actions: &mut Vec<Action>) {
        let link = &self.contenders[own].links[master];
        let Some(first) = link.first() else { return };
        if first.is_readable {
            actions.push(Action::Deliver(own, master));
        }
        if self.left.breaks > 0 {
            actions.push(Action::Break(own, master));
        }
        if self.may_renew(part, own, master) {
            actions.push(Action::Renew(own, master));
        }
        let Some(next) = link.iter().find(|request| request.reply.is_none()) else { return };
        let is_release = next.kind.is_release();
        if is_release && !part.releases || !self.is_in_order(part, own, master) {
            return;
        }
        let waits = first.reply.is_some();
        // A refusal that is late delays a defeat, and a late acknowledgement the end of a release.
        let grants = !is_release && self.masters[master].grants(part, part.resource(own), next);
        let may_be_late = own < part.late && grants;
        if !waits && (part.prompt || !may_be_late) {
            actions.push(Action::Execute(own, master));
        }
        if waits || may_be_late {
            actions.push(Action::ExecuteLate(own, master));
        }
    }

    /// Masters are alike, but for a meeting point: they are numbered as they carry out the first
    /// request of all.
    fn is_in_order(&self, part: &Part, own: usize, master: usize) -> bool {
        let first_alike = if part.has_queue() { MEETING_POINT + 1 } else { 0 };
        let is_first = |request: &Request| {
            let is_acquire = request.lock == FIRST && request.kind.is_acquire();
            is_acquire && request.done == Done::default() && request.reply.is_none()
        };
        !part.are_masters_alike() || own > 0 || master <= first_alike || {
            let link = |master: usize| self.contenders[0].links[master].first();
            !(link(master).is_some_and(is_first) && link(master - 1).is_some_and(is_first))
        }
    }

    /// A master's clock and a contender's are never further apart than the part allows.
    fn clock_actions(&self, part: &Part, actions: &mut Vec<Action>) {
        let gained = self.masters.iter().map(|master| master.gained).max().unwrap_or(0);
        let lost = self.contenders.iter().map(|own| own.lost).max().unwrap_or(0);
        let masters = self.masters.iter().enumerate();
        let can = masters.filter(|(_, master)| master.gained + lost < part.drift);
        actions.extend(can.map(|(master, _)| Action::Gain(master)));
        let contenders = self.contenders.iter().enumerate();
        let can = contenders.filter(|(_, own)| own.lost + gained < part.drift);
        actions.extend(can.map(|(own, _)| Action::Lose(own)));
    }

    /// Returns the world after an action that was offered.
    pub(crate) fn take(&mut self, part: &Part, action: Action) {
        match action {
            Action::Tick => self.tick(),
            Action::Begin(own, number) => self.begin(part, own, number),
            Action::Execute(own, master) => {
                if self.execute(part, own, master) {
                    self.deliver(part, own, master);
                }
            }
            Action::ExecuteLate(own, master) => {
                self.execute(part, own, master);
            }
            Action::Deliver(own, master) => self.deliver(part, own, master),
            Action::Break(own, master) => {
                self.left.breaks -= 1;
                self.cut(part, own, master);
            }
            Action::TimeOut(own) => {
                self.left.cancels -= 1;
                self.time_out(part, own);
            }
            Action::Release(own) => {
                let open = self.contenders[own].open();
                let is_attempt = open.is_some_and(Lock::is_attempt);
                self.left.cancels -= u8::from(is_attempt);
                self.give_up(part, own);
            }
            Action::ReleaseAgain(own, lock, master) => {
                self.release_again(part, own, lock, master);
            }
            Action::Extend(own) => {
                self.left.extensions -= 1;
                self.extend(part, own);
            }
            Action::Leave(own) => self.leave(part, own),
            Action::Lapse(master) => self.masters[master].keys[0] = None,
            Action::TakeAgain(own) => self.take_again(part, own),
            Action::HandOn(own) => self.hand_on(part, own),
            Action::Resume(own, number) => {
                self.left.resumes -= 1;
                self.resume(part, own, number);
            }
            Action::Plant(master) => {
                self.left.plants -= 1;
                self.plant(part, master);
            }
            Action::Propose(own, number) => {
                self.left.second -= 1;
                self.propose(part, own, number);
            }
            Action::Renew(own, master) => self.renew(part, own, master),
            Action::Gain(master) => {
                self.left.slips -= 1;
                self.masters[master].gained += 1;
            }
            Action::Lose(own) => {
                self.left.slips -= 1;
                self.contenders[own].lost += 1;
            }
            loss => self.lose(part, loss),
        }
        self.expire();
    }

    /// Carries out the next command of a link. Says whether the request is done.
    fn execute(&mut self, part: &Part, own: usize, master: usize) -> bool {
        let (now, resource) = (self.now, part.resource(own));
        let link = &mut self.contenders[own].links[master];
        let next = link.iter_mut().find(|request| request.reply.is_none());
        let Some(request) = next else { return false };
        request.reply = self.masters[master].execute(part, resource, request, now);
        request.is_readable = request.reply.is_some() && !part.prompt;
        request.reply.is_some()
    }

    fn tick(&mut self) {
        self.now += 1;
        for own in 0..self.contenders.len() {
            let is_new = |request: &Request| request.reply.is_some() && !request.is_readable;
            if !self.contenders[own].links.iter().flatten().any(is_new) {
                continue;
            }
            for request in self.contenders[own].links.iter_mut().flatten() {
                request.is_readable = request.reply.is_some();
            }
        }
    }

    fn expire(&mut self) {
        let now = self.now;
        for master in &mut self.masters {
            let clock = now + master.gained;
            if master.keys.iter().flatten().any(|(_, until)| *until <= clock) {
                master.expire(now);
            }
        }
    }
}
