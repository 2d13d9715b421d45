//! Decides whether the masters hold the `max_ttl` that an `init` has written, and whether that
//! `init` continues if another `init` runs at the same time. See rules A2 and A15 of
//! `docs/PROTOCOL.md`.
//!
//! A script writes `max_ttl` only over the value it expects, and all values are read again after
//! the last answer. So there was a moment at which all masters held the value that a call reports.
//! Two calls with different values either succeed one after the other, or one of them fails.
//!
//! Two calls that keep overwriting each other would not end. If masters are split between the
//! values, the call with the smaller value gives up, and the other continues. If all masters hold
//! the value of another call, that call has succeeded, and its value is not overwritten.
//!
//! A written set is also read back. A master that shows another set is written again, a few times
//! at most.
//!
//! A call that gives up fails and reverts its writes, because it may have overwritten the value of
//! another successful call on masters that it read while that call was at work. It continues like a
//! call without a `max_ttl`, so all masters get the largest `max_ttl` of any of them.

use redlock_core::admission::{AdmissionOp, Millis, Outcome, RecordedSet, SetId};

use super::{InitPlan, Scored};

/// One batch of scripts: the intended writes and their outcomes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WritePass {
    /// The `max_ttl` that all masters should hold.
    max_ttl: Millis,
    /// An operator requested exactly this value. Otherwise it is the largest known value, and a
    /// retry includes values that have become larger.
    is_asked: bool,
    /// No master was admitted, see [`InitPlan::refused`].
    refused: bool,
    /// The set for all masters, if sets are written.
    set: Option<SetId>,
    masters: Vec<Written>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Written {
    master: usize,
    /// Its record was removed, so it has no `max_ttl`.
    is_removed: bool,
    /// The `max_ttl` read from it, or written by this batch. Any other value is from another call.
    expected: Option<Millis>,
    /// The outcome of the script. `None` if it did not answer, or was refused.
    outcome: Option<Outcome>,
}

/// The result of reading all masters after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// All hold the written value.
    Yes,
    /// A record differed from the one that had been read. Another batch may succeed.
    Moved,
    /// Some master holds another `max_ttl`. Another batch may succeed.
    Differs,
    /// The `max_ttl` of another call stays.
    GivesUp,
}

impl WritePass {
    /// Creates the batch that carries out this plan.
    pub fn new(plan: &InitPlan) -> Self {
        let written = |(master, order): &(usize, AdmissionOp)| {
            let expected = match order {
                AdmissionOp::Init(init) => init.expect.max_ttl,
                _ => None,
            };
            let is_removed = matches!(order, AdmissionOp::Remove(_));
            Written { master: *master, is_removed, expected, outcome: None }
        };
        let masters = plan.orders.iter().map(written).collect();
        let InitPlan { max_ttl, lower: is_asked, refused, .. } = *plan;
        let set = plan.set.as_ref().map(|set| set.id);
        Self { max_ttl, is_asked, refused, set, masters }
    }

    /// Returns `true` if the master refused the script.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Returns `true` if a script found another value than the one read, or was late.
    pub fn has_moved(&self) -> bool {
        let moved = |outcome| matches!(outcome, Outcome::Moved | Outcome::Late);
        self.masters.iter().any(|written| written.outcome.is_some_and(moved))
    }

    /// Returns the `max_ttl` that all masters should hold.
    pub fn max_ttl(&self) -> Millis {
        self.max_ttl
    }

    /// Records the outcome of a master's script.
    pub fn answered(&mut self, master: usize, outcome: Outcome) {
        let max_ttl = self.max_ttl;
        for written in self.masters.iter_mut().filter(|written| written.master == master) {
            written.outcome = Some(outcome);
            if outcome == Outcome::Done {
                written.expected = Some(max_ttl);
            }
        }
    }

    /// Judges by the values read after all answers.
    pub fn settled(&self, answers: &[Scored]) -> Settled {
        if self.gives_up(answers) {
            Settled::GivesUp
        } else if !self.masters.iter().all(|written| self.is_there(written, answers)) {
            Settled::Differs
        } else if self.has_moved() || !self.hold_set(answers) {
            Settled::Moved
        } else {
            Settled::Yes
        }
    }

    /// Returns `true` unless the master could not be written and has no `max_ttl`, or is away. Such
    /// a master is reported as not admitted.
    fn is_there(&self, written: &Written, answers: &[Scored]) -> bool {
        match held(written.master, answers) {
            _ if written.is_removed => true,
            Some(held) => held == self.max_ttl,
            None => written.outcome != Some(Outcome::Done),
        }
    }

    /// Returns `true` if no master shows another set than its script has written. Otherwise another
    /// `init` may be at work.
    fn hold_set(&self, answers: &[Scored]) -> bool {
        let Some(set) = self.set else { return true };
        let shown = |written: &Written| {
            let found = answers.iter().find(|answer| answer.master == written.master);
            found.is_none_or(|found| found.facts.record.set.as_ref().map(id_of) == Some(set))
        };
        let mut done = self.masters.iter().filter(|one| one.outcome == Some(Outcome::Done));
        done.all(shown)
    }

    fn gives_up(&self, answers: &[Scored]) -> bool {
        let foreign = self.masters.iter().filter_map(|written| {
            let held = held(written.master, answers).filter(|_| !written.is_removed)?;
            (held != self.max_ttl && Some(held) != written.expected).then_some(held)
        });
        let Some(largest) = foreign.max().filter(|_| self.is_asked) else { return false };
        let all = |written: &Written| held(written.master, answers) == Some(largest);
        largest > self.max_ttl || self.masters.iter().all(all)
    }
}

fn id_of(set: &RecordedSet) -> SetId {
    set.id
}

fn held(master: usize, answers: &[Scored]) -> Option<Millis> {
    let found = answers.iter().find(|answer| answer.master == master);
    found.and_then(|answer| answer.facts.record.max_ttl)
}

#[cfg(test)]
mod tests {
    use redlock_core::admission::{Identity, Record};

    use super::*;
    use crate::admission::{Incarnation, MasterKind, MasterView};

    const WANTED: Millis = 40;
    const BEFORE: Millis = 60;
    const DONE: [Option<Outcome>; 3] = [Some(Outcome::Done); 3];
    const MOVED: [Option<Outcome>; 3] =
        [Some(Outcome::Done), Some(Outcome::Moved), Some(Outcome::Done)];
    const SILENT: [Option<Outcome>; 3] = [Some(Outcome::Done), None, Some(Outcome::Done)];

    fn pass(outcomes: [Option<Outcome>; 3], is_asked: bool) -> WritePass {
        let written =
            |master| Written { master, is_removed: false, expected: Some(BEFORE), outcome: None };
        let masters = (0..3).map(written).collect();
        let (refused, set) = (false, None);
        let mut pass = WritePass { max_ttl: WANTED, is_asked, refused, set, masters };
        for (master, outcome) in outcomes.into_iter().enumerate() {
            outcome.into_iter().for_each(|outcome| pass.answered(master, outcome));
        }
        pass
    }

    /// Returns the answers of masters that hold these values. Masters without one are away.
    fn answers(held: [Option<Millis>; 3]) -> Vec<Scored> {
        let answer = |(master, held): (usize, Option<Millis>)| {
            let identity: Identity = format!("{master:040x}").parse().ok()?;
            let record = Record { max_ttl: Some(held?), ..Record::default() };
            let role = MasterKind::Master;
            let facts = MasterView { identity, time: 0, role, record, members: None };
            Some(Scored { master, asked: Incarnation::of(&facts), highest: None, facts })
        };
        held.into_iter().enumerate().filter_map(answer).collect()
    }

    fn settled(outcomes: [Option<Outcome>; 3], is_asked: bool, held: [u64; 3]) -> Settled {
        let held = held.map(|held| Some(held).filter(|held| *held > 0));
        pass(outcomes, is_asked).settled(&answers(held))
    }

    #[test]
    fn init_is_settled_when_every_master_holds_its_value() {
        assert_eq!(settled(DONE, true, [40, 40, 40]), Settled::Yes);
        assert_eq!(settled(MOVED, true, [40, 40, 40]), Settled::Moved);
        assert_eq!(settled(MOVED, true, [40, 60, 40]), Settled::Differs, "it was read before");
        assert_eq!(settled(SILENT, true, [40, 60, 40]), Settled::Differs);
        assert_eq!(
            settled(DONE, true, [40, 0, 40]),
            Settled::Differs,
            "it was written, and is away"
        );
        assert_eq!(settled(SILENT, true, [40, 0, 40]), Settled::Yes, "it is away all the time");
    }

    #[test]
    fn removed_record_does_not_have_to_hold_the_value() {
        let mut pass = pass(DONE, true);
        pass.masters[1].is_removed = true;
        assert_eq!(pass.settled(&answers([Some(40), Some(70), Some(40)])), Settled::Yes);
    }

    #[test]
    fn init_is_not_settled_if_a_master_shows_another_set() {
        let set = |id| RecordedSet { id: SetId(id), size: 3, names: Default::default() };
        let judged = |outcomes, shown: [Option<u64>; 3]| {
            let pass = WritePass { set: Some(SetId(7)), ..pass(outcomes, true) };
            let mut answers = answers([Some(40); 3]);
            for (answer, shown) in answers.iter_mut().zip(shown) {
                answer.facts.record.set = shown.map(set);
            }
            pass.settled(&answers)
        };
        assert_eq!(judged(DONE, [Some(7), Some(7), Some(7)]), Settled::Yes);
        assert_eq!(judged(DONE, [Some(7), Some(8), Some(7)]), Settled::Moved);
        assert_eq!(judged(DONE, [Some(7), Some(7), None]), Settled::Moved);
        assert_eq!(judged(SILENT, [Some(7), None, Some(7)]), Settled::Yes, "it refused the script");
    }

    #[test]
    fn write_pass_takes_its_values_from_the_plan() {
        let plan = |refused| {
            let (orders, floor, lower, set) = (Vec::new(), None, false, None);
            InitPlan { orders, refused, floor, max_ttl: WANTED, lower, set, unanswered: vec![] }
        };
        assert!(WritePass::new(&plan(true)).is_refused());
        let pass = WritePass::new(&plan(false));
        assert_eq!((pass.is_refused(), pass.max_ttl()), (false, WANTED));
    }

    #[test]
    fn smaller_max_ttl_gives_up_if_a_master_holds_a_larger_one() {
        for (held, asked, otherwise) in [
            ([40, 30, 40], Settled::Differs, Settled::Differs),
            ([40, 50, 40], Settled::GivesUp, Settled::Differs),
            ([60, 40, 40], Settled::GivesUp, Settled::Differs),
            ([30, 30, 30], Settled::GivesUp, Settled::Differs),
            ([30, 20, 30], Settled::Differs, Settled::Differs),
        ] {
            assert_eq!(settled(DONE, true, held), asked, "{held:?}");
            assert_eq!(settled(DONE, false, held), otherwise, "{held:?}");
        }
    }
}
