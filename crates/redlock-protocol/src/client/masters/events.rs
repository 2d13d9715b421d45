//! Events of connections.

use redlock_core::{Cause, Facts, Instant, NodeEvent};

use super::link::{State, StepFailure, unmet};
use super::millis::ceil_millis;
use super::steps::Steps;
use super::{Context, Masters, News, Weakness};
use crate::admission::{Event, MasterView};
use crate::client::view::Voters as _;
use crate::meeting_point::Weight;

/// Effect of an event on the copies on a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The master can be reached, and the same process as before answers.
    Up,
    /// The master can be reached, and another process answers.
    Restarted,
    /// The connection was refused, so the process has exited.
    Ended,
    /// There is no connection.
    Down,
    /// The data of the master may be gone.
    DataLost,
    /// No effect.
    Nothing,
}

impl Masters {
    /// Begins the first connections, which have until then.
    pub fn connect(&mut self, until: Instant) {
        self.connecting_until = until;
        self.links.0.iter_mut().for_each(|link| link.state = State::Connecting);
    }

    /// Records that all connections are closed, and no step is under way any longer.
    pub fn disconnect(&mut self, cx: &mut Context<'_>) {
        for master in 0..self.len() {
            self.admit(master, Event::Down, cx);
        }
    }

    /// Forgets all unfinished steps, because the client runs nowhere now. Servers may still
    /// execute earlier requests, so each script compares.
    pub fn park(&mut self) {
        self.steps.iter_mut().for_each(Steps::park);
        self.gate = super::Gate::default();
    }

    /// Handles an event of the connection to `master`. Reports about keys do not concern masters.
    pub fn event(&mut self, master: usize, event: NodeEvent, cx: &mut Context<'_>) {
        let meaning = match event {
            NodeEvent::Up(facts) => self.up(master, facts, cx),
            NodeEvent::Down { cause, retries_now } => self.down(master, cause, retries_now, cx),
            NodeEvent::NoQueue(why) => {
                self.forbid_queue(master, why, cx);
                return cx.news.push(News::LostSight(master));
            }
            NodeEvent::DataLost => {
                self.learn(master, Event::Pushed, cx);
                Meaning::DataLost
            }
            NodeEvent::Members(members) => {
                self.learn(master, Event::Members(members), cx);
                Meaning::Nothing
            }
            _ => return,
        };
        match meaning {
            Meaning::Up | Meaning::Restarted if self.admission.is_foreign(master) => {}
            Meaning::Up | Meaning::Restarted => cx.news.push(News::Reached(master)),
            Meaning::Ended | Meaning::Down => cx.news.push(News::LostSight(master)),
            Meaning::DataLost => self.data_lost(master, cx),
            Meaning::Nothing => {}
        }
        self.advance(cx);
    }

    fn up(&mut self, master: usize, facts: Facts, cx: &mut Context<'_>) -> Meaning {
        cx.news.push(News::Up(master));
        self.warn(master, &facts, cx);
        let link = &mut self.links.0[master];
        (link.state, link.is_silent) = (State::Up, false);
        link.is_incurable = false;
        link.step_failure = StepFailure::of(&facts, cx.now);
        link.unfit = unmet(self.terms.fencing, self.terms.has_quarantine, &facts);
        // All state of the previous connection is reset.
        link.admitted_as = None;
        let before = self.admission.process(master);
        let time = self.admission.time(master, ceil_millis(cx.now));
        let changed = self.admit(master, Event::Up(MasterView::of(&facts, None, time)), cx);
        let link = &mut self.links.0[master];
        link.weight = Weight::of(&facts.run_id);
        link.facts = Some(facts);
        link.read_at = cx.now;
        if !self.votes(master) {
            cx.news.push(News::NotCounting(master, self.cause(master, cx.now)));
        }
        let is_new = before.is_some() && before != self.admission.process(master);
        self.urge(master, cx);
        self.steps[master].drop_step();
        self.learn_facts(master, cx.now);
        if is_new {
            cx.news.push(News::ProcessEnded(master));
        }
        self.tell(changed, cx);
        if is_new { Meaning::Restarted } else { Meaning::Up }
    }

    /// Warns of features that a server lacks.
    fn warn(&mut self, master: usize, facts: &Facts, cx: &mut Context<'_>) {
        let link = &mut self.links.0[master];
        if !std::mem::replace(&mut link.is_known_mute, !facts.tracks) && !facts.tracks {
            cx.news.push(News::Weak(master, Weakness::NoPushes));
        }
        let had_queue = !std::mem::replace(&mut link.is_unqueued, facts.no_queue.is_some());
        let is_news = had_queue && facts.tracks && self.terms.wants_queue;
        if let Some(why) = facts.no_queue.as_ref().filter(|_| is_news) {
            cx.news.push(News::NoQueue(master, why.clone()));
        }
        let lacked_barrier = std::mem::replace(&mut link.lacks_barrier, !facts.has_barrier);
        if !facts.has_barrier && !lacked_barrier {
            cx.news.push(News::Weak(master, Weakness::NoBarrier));
        }
    }

    fn down(
        &mut self,
        master: usize,
        cause: Cause,
        retries_now: bool,
        cx: &mut Context<'_>,
    ) -> Meaning {
        let is_news = self.links.0[master].state.cause() != Some(&cause);
        cx.news.push(News::Down(master, cause.clone(), is_news));
        let has_ended = cause == Cause::ConnectionRefused;
        let link = &mut self.links.0[master];
        link.facts = None;
        // Before the machine looks, because it waits for masters that are still being connected.
        link.state = if retries_now { State::Reviving(cx.now, cause) } else { State::Down(cause) };
        let changed = self.admit(master, Event::Down, cx);
        self.urge(master, cx);
        self.steps[master].drop_step();
        if has_ended {
            cx.news.push(News::ProcessEnded(master));
        }
        self.tell(changed, cx);
        if has_ended { Meaning::Ended } else { Meaning::Down }
    }

    fn urge(&mut self, master: usize, cx: &mut Context<'_>) {
        if self.links.0[master].urge(self.is_holding) {
            cx.news.push(News::Urgent(master, self.links.0[master].is_urgent));
        }
    }
}
