//! Lost keys and data, and how a master votes again.

use super::action::Action;
use super::broken::Broken;
use super::master::Quarantine;
use super::part::Part;
use super::world::World;

impl World {
    pub(crate) fn loss_actions(&self, part: &Part, actions: &mut Vec<Action>) {
        for (index, master) in self.masters.iter().enumerate() {
            let has_key = master.keys.iter().any(Option::is_some);
            if self.left.vanish > 0 && has_key {
                actions.push(Action::Vanish(index));
            }
            if self.left.losses > 0 && part.lossy.contains(&index) {
                actions.push(Action::Forget(index));
            }
            let Some(quarantine) = &master.quarantine else { continue };
            if part.admits {
                self.admission_actions(part, index, quarantine, actions);
            }
            let contenders = self.contenders.iter().enumerate();
            let ignorant = contenders.filter(|(_, own)| own.votes[index].is_some());
            if part.broken != Some(Broken::FromExtension) {
                actions.extend(ignorant.map(|(own, _)| Action::Learn(own, index)));
            }
        }
    }

    fn admission_actions(
        &self,
        part: &Part,
        master: usize,
        quarantine: &Quarantine,
        actions: &mut Vec<Action>,
    ) {
        let is_over = quarantine.until <= self.now;
        if is_over || part.broken == Some(Broken::FloorEarly) {
            let others = self.masters.iter().enumerate();
            let others = others.filter(|(other, found)| {
                *other != master && found.score.is_some() && !quarantine.read.contains(other)
            });
            actions.extend(others.map(|(other, _)| Action::ReadFloor(master, other)));
        }
        // N - q + 1 others.
        let mut needed = part.masters - part.masters / 2;
        if part.broken == Some(Broken::FloorFromTooFew) {
            needed -= 1;
        }
        if is_over && quarantine.read.len() >= needed {
            actions.push(Action::Admit(master));
        }
    }

    pub(crate) fn lose(&mut self, part: &Part, action: Action) {
        match action {
            Action::Vanish(master) => {
                self.left.vanish -= 1;
                self.masters[master].keys = Default::default();
            }
            Action::Forget(master) => self.forget(part, master),
            Action::Learn(own, master) => self.learn(part, own, master),
            Action::ReadFloor(master, other) => {
                let score = self.masters[other].score.unwrap_or(0);
                if let Some(quarantine) = &mut self.masters[master].quarantine {
                    quarantine.floor = quarantine.floor.max(score);
                    quarantine.read.push(other);
                    quarantine.read.sort_unstable();
                }
            }
            Action::Admit(master) => self.admit(part, master),
            _ => unreachable!("no loss"),
        }
    }

    fn forget(&mut self, part: &Part, master: usize) {
        self.left.losses -= 1;
        let until = self.now + part.ttl;
        let lost = &mut self.masters[master];
        if !part.keeps_keys {
            lost.keys = Default::default();
        }
        lost.score = None;
        lost.life += 1;
        lost.quarantine = Some(Quarantine { until, read: Vec::new(), floor: 0 });
        if part.restarts && part.broken != Some(Broken::FromExtension) {
            for own in 0..self.contenders.len() {
                self.cut(part, own, master);
                self.learn(part, own, master);
            }
        }
    }

    /// All clients that have not learned of the loss learn it now.
    fn admit(&mut self, part: &Part, master: usize) {
        let found = &mut self.masters[master];
        let Some(quarantine) = found.quarantine.take() else { return };
        found.score = Some(quarantine.floor);
        let life = found.life;
        for own in 0..self.contenders.len() {
            let is_ignorant = self.contenders[own].votes[master].is_some();
            if is_ignorant && part.broken != Some(Broken::FromExtension) {
                self.learn(part, own, master);
            }
            self.contenders[own].votes[master] = Some(life);
        }
    }
}
