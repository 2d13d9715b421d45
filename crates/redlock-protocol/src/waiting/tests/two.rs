//! Two processes and the meeting point M of their key: every order of ten events, with M lost in
//! each state. The others grant the key to whom M has let in, or not.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use redlock_core::{Call, Instant, Verdict};

use super::world::moment;
use crate::waiting::{Ask, Moment, QueueAnswer, Refusal, Step, Waiting};

const M: usize = 0;
/// The meeting point after M is lost.
const NEXT: usize = 1;
const EVENTS_MAX: usize = 10;
const RESERVATION: Duration = Duration::from_millis(50);

/// The key at a meeting point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Free,
    Of(usize),
    ReservedFor(usize),
}

/// A message of a meeting point to a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Message {
    LetIn,
    QueueAnswer(QueueAnswer),
    Placed(QueueAnswer),
    Watched(usize, Key),
    Call(usize, Call),
    Pushed,
    Lost,
}

/// One meeting point.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Meeting {
    key: Key,
    queue: Vec<usize>,
    watching: [bool; 2],
}

/// One process with one caller, which comes once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    waiting: Waiting<u32>,
    inbox: VecDeque<Message>,
    /// The current attempt, and whether M has let it in, if M was queried.
    attempt: Option<Attempt>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    is_in: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Waits,
    Holds,
    Done,
    Dead,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The first message of M arrives, and is answered.
    Arrives(usize),
    /// The others grant the key to whom M has let in.
    Wins(usize),
    /// They have another holder.
    Fails(usize),
    /// They are silent.
    Silent(usize),
    Releases(usize),
    Due(usize),
    GivesUp(usize),
    Dies(usize),
    /// A reservation, or the key of a process that died, expires.
    Expires,
    MIsLost,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: Instant,
    meetings: [Meeting; 2],
    processes: [Process; 2],
    is_lost: bool,
    /// An orphaned key is in the way on the other masters.
    is_blocked: bool,
}

impl World {
    /// Both have come and were refused, by a client that holds the key at M, or by each other.
    fn begin(key: Key) -> Self {
        let meeting = Meeting { key: Key::Free, queue: Vec::new(), watching: [false; 2] };
        let process = |id: usize| {
            let mut waiting = Waiting::new();
            let step = waiting.join(id as u32, false, Instant::ORIGIN);
            assert!(matches!(step, Step::Attempt(_, Ask::All)));
            let attempt = Some(Attempt { is_in: false });
            Process { waiting, inbox: VecDeque::new(), attempt, stage: Stage::Waits }
        };
        let mut world = Self {
            now: Instant::ORIGIN,
            meetings: [Meeting { key, ..meeting.clone() }, meeting],
            processes: [0, 1].map(process),
            is_lost: false,
            is_blocked: false,
        };
        for id in [0, 1] {
            if key == Key::Of(id) {
                world.hold(id);
            } else {
                world.lose(id, Refusal::Held, None);
            }
        }
        world
    }

    fn meeting_point(&self) -> usize {
        if self.is_lost { NEXT } else { M }
    }

    fn moment(&self) -> Moment {
        moment(self.now, 0.5)
    }

    fn hold(&mut self, id: usize) {
        let process = &mut self.processes[id];
        (process.stage, process.attempt) = (Stage::Holds, None);
        assert_eq!(process.waiting.won(self.now), Step::Wait);
        self.check_holders();
    }

    /// Checks that only a process let in by a meeting point gets the key, and that no process is
    /// let in while it is held.
    fn check_holders(&self) {
        let holders = (0..2).filter(|id| self.processes[*id].stage == Stage::Holds).count();
        assert!(holders <= 1 || self.is_lost, "two were let in: {self:?}");
    }

    fn lose(&mut self, id: usize, refusal: Refusal, answer: Option<QueueAnswer>) {
        let moment = self.moment();
        self.processes[id].attempt = None;
        let step = self.processes[id].waiting.lost(refusal, answer, moment);
        self.carry_out(id, step);
    }

    /// Lets it happen; false where it cannot happen now.
    fn happen(&mut self, event: Event) -> bool {
        let before = self.clone();
        match event {
            Event::Arrives(id) => match self.processes[id].inbox.pop_front() {
                Some(message) if self.is_alive(id) => self.arrive(id, message),
                _ => return false,
            },
            Event::Wins(id) if self.is_let_in(id) && !self.is_blocked => self.hold(id),
            // It first deletes its key at M, and then requests a place.
            Event::Fails(id) if self.is_let_in(id) && !self.is_blocked => {
                self.is_blocked = true;
                self.free(self.processes[id].waiting.place(), id);
                self.lose(id, Refusal::Alone, None);
            }
            Event::Silent(id) if self.is_let_in(id) => {
                self.undo(self.processes[id].waiting.place(), id);
                self.lose(id, Refusal::NoQuorum, None);
            }
            Event::Releases(id) if self.processes[id].stage == Stage::Holds => {
                self.processes[id].stage = Stage::Done;
                self.undo(Some(self.meeting_point()), id);
            }
            Event::Due(id) if self.is_alive(id) => match self.processes[id].waiting.due() {
                Some(due) => {
                    self.now = self.now.max(due);
                    let step = self.processes[id].waiting.tick(self.now);
                    self.carry_out(id, step);
                }
                None => return false,
            },
            Event::GivesUp(id) if self.waits(id) => self.give_up(id),
            Event::Dies(id) if self.is_alive(id) => {
                self.processes[id].stage = Stage::Dead;
                self.processes[id].inbox.clear();
            }
            Event::Expires => self.expire(),
            Event::MIsLost if !self.is_lost => {
                self.is_lost = true;
                for id in [0, 1] {
                    // Messages arrive in the order in which they were sent.
                    self.processes[id].inbox.push_back(Message::Lost);
                }
            }
            _ => return false,
        }
        self.check();
        *self != before
    }

    fn is_alive(&self, id: usize) -> bool {
        self.processes[id].stage != Stage::Dead
    }

    fn waits(&self, id: usize) -> bool {
        self.processes[id].stage == Stage::Waits
    }

    fn is_let_in(&self, id: usize) -> bool {
        let is_in = |attempt: Attempt| attempt.is_in;
        self.waits(id) && self.processes[id].attempt.is_some_and(is_in)
    }

    fn give_up(&mut self, id: usize) {
        if self.is_let_in(id) {
            self.undo(self.processes[id].waiting.place(), id);
        }
        self.processes[id].stage = Stage::Done;
        self.processes[id].attempt = None;
        let step = self.processes[id].waiting.leave(id as u32, self.now);
        self.carry_out(id, step);
    }

    fn expire(&mut self) {
        self.is_blocked = false;
        for at in [M, NEXT] {
            let is_over = match self.meetings[at].key {
                Key::ReservedFor(_) => true,
                Key::Of(id) => !self.is_alive(id),
                Key::Free => false,
            };
            if is_over {
                self.change(at, Key::Free);
            }
        }
    }

    fn change(&mut self, at: usize, key: Key) {
        self.meetings[at].key = key;
        for id in [0, 1] {
            if std::mem::take(&mut self.meetings[at].watching[id]) && self.reaches(at) {
                self.processes[id].inbox.push_back(Message::Pushed);
            }
        }
    }

    fn reaches(&self, at: usize) -> bool {
        at != M || !self.is_lost
    }

    fn arrive(&mut self, id: usize, message: Message) {
        let (moment, at) = (self.moment(), self.processes[id].waiting.place());
        let process = &mut self.processes[id];
        let step = match message {
            Message::LetIn => {
                if let Some(attempt) = &mut process.attempt {
                    attempt.is_in = true;
                }
                return;
            }
            Message::QueueAnswer(answer) if process.attempt.is_some() => {
                return self.lose(id, Refusal::Held, Some(answer));
            }
            Message::Placed(answer) => process.waiting.queued(answer.at, Some(answer), moment),
            Message::Watched(at, key) => {
                let verdict = if key == Key::Free { Verdict::Free } else { Verdict::HELD };
                process.waiting.watch_answered(at, &verdict, moment)
            }
            Message::Call(at, call) => process.waiting.called(at, call, RESERVATION, moment),
            Message::Pushed => process.waiting.changed(at.unwrap_or(M), moment),
            Message::Lost => {
                let is_unanswered = process.attempt.is_some_and(|attempt| !attempt.is_in);
                let step = process.waiting.silent(M, moment);
                assert!(matches!(step, Step::Wait | Step::Leave(M)), "{step:?}");
                let step = process.waiting.lost_sight(M, moment);
                assert_eq!(step, Step::Wait);
                if is_unanswered && at == Some(M) {
                    return self.lose(id, Refusal::Silent, None);
                }
                Step::Wait
            }
            Message::QueueAnswer(_) => Step::Wait,
        };
        self.carry_out(id, step);
    }

    fn carry_out(&mut self, id: usize, step: Step<u32>) {
        match step {
            Step::Wait => {}
            Step::Attempt(..) => {
                let at = self.meeting_point();
                self.processes[id].waiting.entering(at);
                self.processes[id].attempt = Some(Attempt { is_in: false });
                self.enter(at, id, true);
            }
            Step::Queue => {
                let (at, moment) = (self.meeting_point(), self.moment());
                let step = self.processes[id].waiting.queue_sent(Some(at), moment);
                assert_eq!(step, Step::Wait);
                self.enter(at, id, false);
            }
            Step::Watch => {
                let place = self.processes[id].waiting.place();
                let (at, moment) = (place.unwrap_or_else(|| self.meeting_point()), self.moment());
                let step = self.processes[id].waiting.watch_sent(Some(at), moment);
                assert_eq!(step, Step::Wait);
                self.meetings[at].watching[id] = true;
                let message = Message::Watched(at, self.meetings[at].key);
                self.processes[id].inbox.push_back(message);
            }
            Step::Leave(at) => self.undo(Some(at), id),
        }
    }

    /// ENTER, as the script does it.
    fn enter(&mut self, at: usize, id: usize, asks: bool) {
        let is_ours = self.meetings[at].key == Key::ReservedFor(id);
        let is_free = self.meetings[at].key == Key::Free;
        let head = self.meetings[at].queue.first().copied();
        if asks && (is_ours || is_free && head.is_none_or(|head| head == id)) {
            self.meetings[at].queue.retain(|one| *one != id);
            self.change(at, Key::Of(id));
            return self.processes[id].inbox.push_back(Message::LetIn);
        }
        if !is_ours && !self.meetings[at].queue.contains(&id) {
            self.meetings[at].queue.push(id);
        }
        if is_free && head.is_some_and(|head| head != id) {
            self.call_next(at);
        }
        let rank = self.meetings[at].queue.iter().position(|one| *one == id);
        let is_free = self.meetings[at].key == Key::Free;
        let is_reserved_for_us = self.meetings[at].key == Key::ReservedFor(id);
        let rank = rank.map(|rank| rank as u32);
        let others_wait = self.meetings[at].queue.iter().any(|one| *one != id);
        let answer = QueueAnswer {
            at,
            rank,
            others_wait,
            is_free,
            is_reserved_for_us,
            reserved_for: None,
            has_failed: false,
        };
        let message = if asks { Message::QueueAnswer(answer) } else { Message::Placed(answer) };
        self.processes[id].inbox.push_back(message);
    }

    /// LEAVE, as the script does it.
    fn undo(&mut self, at: Option<usize>, id: usize) {
        let Some(at) = at.filter(|at| self.reaches(*at)) else { return };
        self.meetings[at].queue.retain(|one| *one != id);
        let key = self.meetings[at].key;
        if [Key::Free, Key::Of(id), Key::ReservedFor(id)].contains(&key) && !self.call_next(at) {
            self.change(at, Key::Free);
        }
    }

    /// Compare-and-delete.
    fn free(&mut self, at: Option<usize>, id: usize) {
        let Some(at) = at.filter(|at| self.reaches(*at)) else { return };
        if self.meetings[at].key == Key::Of(id) {
            self.change(at, Key::Free);
        }
    }

    fn call_next(&mut self, at: usize) -> bool {
        while !self.meetings[at].queue.is_empty() {
            let next = self.meetings[at].queue.remove(0);
            if self.is_alive(next) {
                self.change(at, Key::ReservedFor(next));
                self.processes[next].inbox.push_back(Message::Call(at, Call::Go));
                if let Some(second) = self.meetings[at].queue.first().copied() {
                    self.processes[second].inbox.push_back(Message::Call(at, Call::Next));
                }
                return true;
            }
        }
        false
    }

    /// A process that waits is brought on by an answer, the others, or an alarm.
    fn check(&self) {
        for id in [0, 1] {
            let process = &self.processes[id];
            let goes_on = process.attempt.is_some()
                || process.waiting.is_asking()
                || process.waiting.due().is_some();
            assert!(!self.waits(id) || goes_on, "{id} sleeps forever: {self:?}");
        }
    }

    /// From here on nothing fails: all waiters are served, within a few seconds.
    fn serve_all(mut self) {
        self.is_blocked = false;
        let begun = self.now;
        for _ in 0..1_000 {
            let Some(event) = self.next_event() else { break };
            self.happen(event);
        }
        let took = self.now.saturating_since(begun);
        assert!([0, 1].iter().all(|id| !self.waits(*id)), "not served: {self:?}");
        assert!(took <= Duration::from_secs(5), "{took:?}");
    }

    fn next_event(&mut self) -> Option<Event> {
        for id in [0, 1] {
            let process = &self.processes[id];
            if process.stage == Stage::Holds {
                return Some(Event::Releases(id));
            }
            if self.is_alive(id) && !process.inbox.is_empty() {
                return Some(Event::Arrives(id));
            }
            if self.is_let_in(id) {
                return Some(Event::Wins(id));
            }
        }
        let due = |id: &usize| self.processes[*id].waiting.due().map(|due| (due, *id));
        let (_, next) = [0, 1].iter().filter(|id| self.waits(**id)).filter_map(due).min()?;
        // A key that no process gives back has expired by then.
        self.expire();
        Some(Event::Due(next))
    }
}

fn events() -> Vec<Event> {
    let of = [
        Event::Arrives,
        Event::Wins,
        Event::Fails,
        Event::Silent,
        Event::Releases,
        Event::Due,
        Event::GivesUp,
        Event::Dies,
    ];
    let both = of.into_iter().flat_map(|event| [event(0), event(1)]);
    both.chain([Event::Expires, Event::MIsLost]).collect()
}

#[test]
fn no_order_of_ten_events_of_two_processes_loses_a_waiter() {
    let events = events();
    let mut seen: HashSet<World> = HashSet::new();
    let begin = [Key::Of(0), Key::Free];
    let mut states: Vec<World> = begin.map(World::begin).into();
    let mut reached: BTreeMap<usize, usize> = BTreeMap::new();
    for depth in 0..EVENTS_MAX {
        let mut next = Vec::new();
        for world in &states {
            for event in &events {
                let mut after = world.clone();
                if after.happen(*event) && seen.insert(after.clone()) {
                    next.push(after);
                }
            }
        }
        reached.insert(depth, next.len());
        states = next;
    }
    assert!(seen.len() > 50_000, "only {} states: {reached:?}", seen.len());
    seen.into_iter().for_each(World::serve_all);
}
