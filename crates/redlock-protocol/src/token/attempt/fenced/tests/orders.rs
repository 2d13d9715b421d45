//! Ballots of one attempt, in every order of events.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::*;

/// A request to a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Asked {
    /// The key, with the first ballot (`true`) or without.
    Key(bool),
    Ballot(u32),
    Score,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Event {
    /// The oldest request to this master is answered.
    Answer(usize, Answer),
    Disown(usize),
    TimeOut,
    EndBallots,
    Expire,
}

/// An attempt, and everything an omniscient observer knows about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    attempt: Attempt,
    now: Instant,
    requests: Vec<VecDeque<Asked>>,
    /// The masters that accepted each ballot, and have lost no data since.
    accepted: BTreeMap<u32, MasterSet>,
    /// Masters that have the key for us, by their answers.
    granted: MasterSet,
    /// The masters of these that have shown a score since.
    scored: MasterSet,
    disowned: usize,
    /// How many of the oldest requests to each master were made before its data was lost.
    stale: Vec<usize>,
    is_timed_out: bool,
    is_resumed: bool,
}

/// When the second ballot of a resume is proposed.
const SECOND: u64 = 100;

/// The largest number of proposed ballots. (With three, the test takes minutes.)
const ROUNDS: u32 = 2;

impl World {
    fn new(first: Option<usize>) -> Self {
        let attempt = attempt(3, HoldOptions::default(), at(0));
        let attempt = match first {
            Some(first) => attempt.asking_first(first).fenced(None),
            None => attempt.fenced(Some(ballot(1))),
        };
        let mut requests = vec![VecDeque::new(); 3];
        attempt.asked().iter().for_each(|one| requests[one].push_back(Asked::Key(first.is_none())));
        let (accepted, none) = (BTreeMap::new(), MasterSet::EMPTY);
        Self {
            attempt,
            now: at(1),
            requests,
            accepted,
            granted: none,
            scored: none,
            disowned: 0,
            stale: vec![0; 3],
            is_timed_out: false,
            is_resumed: false,
        }
    }

    /// The attempt that takes over a lease.
    fn resumed() -> Self {
        Self { attempt: resumed(3), is_resumed: true, now: at(SECOND + 1), ..Self::new(None) }
    }

    /// When the request with this ballot was sent that set the key's expiry.
    fn sent(&self, number: u32) -> Instant {
        if self.is_resumed && number > 1 { at(SECOND) } else { at(0) }
    }

    fn events(&self) -> Vec<Event> {
        let mut events = self.answers();
        if self.disowned == 0 {
            events.push(Event::Disown(1));
        }
        events.extend((!self.is_timed_out).then_some(Event::TimeOut));
        events.extend(self.attempt.ballots_until().map(|_| Event::EndBallots));
        events.extend((self.now < at(VALIDITY)).then_some(Event::Expire));
        events
    }

    fn answers(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (master, requests) in self.requests.iter().enumerate() {
            let answers = match requests.front() {
                None => vec![],
                Some(Asked::Key(_) | Asked::Ballot(_)) if self.is_resumed => {
                    vec![accepted(), too_small(), held(), not_ours(), no_member(), closed()]
                }
                Some(Asked::Key(true)) => vec![accepted(), refused(), held(), not_ours(), closed()],
                Some(Asked::Key(false)) => vec![Answer::granted(), held()],
                Some(Asked::Ballot(_)) => {
                    vec![accepted(), too_small(), not_ours(), no_member(), closed()]
                }
                Some(Asked::Score) => vec![scored(), no_member(), closed()],
            };
            events.extend(answers.into_iter().map(|answer| Event::Answer(master, answer)));
        }
        events
    }

    fn apply(&mut self, event: &Event) -> Step {
        match event {
            Event::Answer(master, answer) => self.answer(*master, answer),
            Event::Disown(master) => {
                self.disowned += 1;
                self.stale[*master] = self.requests[*master].len();
                self.lose(*master);
                self.attempt.disown(*master, checked(), self.now)
            }
            Event::TimeOut => {
                self.is_timed_out = true;
                self.attempt.time_out(self.now)
            }
            Event::EndBallots => {
                let until = self.attempt.ballots_until().unwrap();
                self.now = self.now.max(until);
                self.attempt.end_ballots(self.now)
            }
            Event::Expire => {
                self.now = at(VALIDITY);
                Step::Wait
            }
        }
    }

    fn answer(&mut self, master: usize, answer: &Answer) -> Step {
        let asked = self.requests[master].pop_front().unwrap();
        let is_stale = self.stale[master] > 0;
        self.stale[master] = self.stale[master].saturating_sub(1);
        let number = match asked {
            Asked::Key(_) => 1,
            Asked::Ballot(number) => number,
            Asked::Score => 0,
        };
        if matches!(asked, Asked::Key(_)) && crate::token::attempt::is_grant(&answer.verdict) {
            self.granted.insert(master);
        }
        if !self.granted.contains(master) {
            // Answers that arrive after its grant was taken back are ignored.
        } else if answer.verdict.is_refusal() || *answer == no_member() {
            self.lose(master);
        } else if Shown::by(answer) == Shown::Ballots {
            self.scored.insert(master);
            if answer.balloted == Some(Balloted::Accepted) && !is_stale {
                self.accepted.entry(number).or_default().insert(master);
            }
        }
        let (now, sent) = (self.now, self.sent(number));
        match asked {
            Asked::Key(_) => self.attempt.vote(master, answer, sent, now),
            Asked::Ballot(number) => self.attempt.ballot_vote(number, master, answer, sent, now),
            Asked::Score => self.attempt.score_vote(master, answer, now),
        }
    }

    fn lose(&mut self, master: usize) {
        self.granted.remove(master);
        self.scored.remove(master);
        self.accepted.values_mut().for_each(|masters| masters.remove(master));
    }

    /// Returns `true` if some ballot has a quorum, by the definition only.
    fn is_proven(&self) -> bool {
        self.accepted.values().any(|masters| masters.len() >= 2)
    }

    /// Returns `true` if a ballot with a quorum was proposed while its keys still existed.
    fn is_in_time(&self) -> bool {
        let mut proven = self.accepted.iter().filter(|(_, masters)| masters.len() >= 2);
        proven.any(|(number, _)| self.now < self.sent(*number).saturating_add(ms(VALIDITY)))
    }

    /// Carries out a step as the driver does. Returns `true` if the attempt continues.
    fn carry_out(&mut self, step: Step) -> bool {
        let (number, masters) = match step {
            Step::Won | Step::Lost(_) => return false,
            Step::Wait => (0, MasterSet::EMPTY),
            Step::AwaitCopies => panic!("no more copies are wanted"),
            Step::TakeAgain => panic!("no queue is entered"),
            Step::AskOthers => {
                let others = self.attempt.ask_others(Some(ballot(1)));
                others.iter().for_each(|one| self.requests[one].push_back(Asked::Key(true)));
                (1, MasterSet::all(3).without(others))
            }
            Step::Join(masters) => (self.attempt.join(masters).unwrap().0, masters),
            Step::Propose if self.attempt.ballots() == ROUNDS => return false,
            Step::Propose => {
                let next = u64::from(self.attempt.ballots()) + 1;
                self.attempt.propose(ballot(next)).unwrap()
            }
        };
        masters.iter().for_each(|one| self.requests[one].push_back(Asked::Ballot(number)));
        let scores = self.attempt.ask_scores();
        scores.iter().for_each(|one| self.requests[one].push_back(Asked::Score));
        true
    }

    fn check(&self, step: Step) {
        let quorate = self.granted.len() >= 2;
        let in_time = self.is_in_time();
        match step {
            Step::Won => {
                assert!(quorate && in_time);
                let token = self.attempt.fencing_token().unwrap();
                let number = u32::try_from(token.get() / 32).unwrap();
                assert!(self.accepted[&number].len() >= 2, "{number} of {:?}", self.accepted);
            }
            Step::Lost(Defeat::BallotRefused) => assert!(!self.is_proven()),
            Step::Lost(Defeat::TooLate) => assert!(!in_time && self.is_proven()),
            _ => assert!(!(quorate && in_time), "it is won"),
        }
        for master in 0..3 {
            let holds = self.attempt.ledger().hold_until(master) > Instant::ORIGIN;
            assert_eq!(holds, self.scored.contains(master), "master {master}");
        }
    }

    /// Every attempt that waits has something to wait for.
    fn check_liveness(&self) {
        let is_waiting = self.requests.iter().any(|requests| !requests.is_empty());
        assert!(is_waiting || self.attempt.ballots_until().is_some(), "it waits for nothing");
    }
}

fn every_order(first: World) -> usize {
    let mut seen = HashSet::from([first]);
    let mut open: Vec<World> = seen.iter().cloned().collect();
    while let Some(world) = open.pop() {
        for event in world.events() {
            let mut next = world.clone();
            let step = next.apply(&event);
            next.check(step);
            if next.carry_out(step) {
                next.check_liveness();
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
    }
    seen.len()
}

#[test]
fn every_returned_ballot_was_accepted_by_a_quorum() {
    let seen = every_order(World::new(None));
    assert!(seen > 10_000, "{seen}");
}

#[test]
fn every_ballot_from_a_meeting_point_has_a_quorum() {
    let seen = every_order(World::new(Some(1)));
    assert!(seen > 10_000, "{seen}");
}

#[test]
fn every_ballot_of_a_resumed_lease_has_a_quorum() {
    let seen = every_order(World::resumed());
    assert!(seen > 10_000, "{seen}");
}
