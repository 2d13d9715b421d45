//! Whole clients: inputs, and the effects that follow.

use redlock_core::admission::Names;
use redlock_core::{Answer, Facts, Key, Verb};

use super::callers::Caller;
use super::effects::{Effect, Effects};
use super::ids::HoldId;
use super::table::Table;
use super::*;
use crate::lab::{Still, at, ms, timing};
use crate::terms::{HoldOptions, Limits};
use crate::waiting::Ask;

/// A client of three masters that vote, without a quarantine and without fencing tokens.
struct World {
    client: Client,
    callers: Table<RequestId, ()>,
    now: u64,
}

/// A sent request: the master, its kind, and the ticket of its vote.
type Sent = (usize, Verb, u128);

impl World {
    fn unconnected() -> Self {
        let limits = Limits {
            ttl: Some(ms(1_000)),
            max_ttl: None,
            node_timeout: None,
            clock_guard: None,
            connect_timeout: ms(1_000),
        };
        let terms = Terms {
            names: Names::new(["a", "b", "c"]),
            limits,
            prefix: Vec::new(),
            has_quarantine: false,
            fencing: false,
            queue: false,
            hand_over: true,
            seed: 1,
        };
        let mut world = Self { client: Client::new(terms), callers: Table::default(), now: 0 };
        world.input(Input::Connect);
        world
    }

    fn new() -> Self {
        let mut world = Self::unconnected();
        for master in 0..3 {
            let mut facts = Facts::master(format!("{master:040x}"));
            facts.tracks = true;
            world.input(Input::Event(master, NodeEvent::Up(facts)));
        }
        assert_eq!(world.client.masters.open(), MasterSet::all(3));
        world
    }

    fn input(&mut self, input: Input<'_>) -> Vec<Effect> {
        let mut effects = Effects::default();
        self.client.handle(input, &mut Still(at(self.now)), &mut effects);
        assert!(self.client.common.known.is_empty());
        effects.list
    }

    fn caller(&mut self, until: u64) -> RequestId {
        let id = self.callers.insert(());
        let caller = Caller {
            resource: "orders:42".into(),
            key: Key::from(&b"orders:42"[..]),
            ttl: None,
            timing: timing(1_000),
            options: HoldOptions::default(),
            label: None,
            asked_at: at(self.now),
            until: Some(at(until)),
            resume: None,
            key_use: Default::default(),
            is_attempted: false,
            is_gone: false,
            has_failed: false,
            ask: Ask::All,
        };
        self.input(Input::Acquire(id, caller));
        id
    }

    /// Moves the line, and returns the requests.
    fn turn(&mut self) -> Vec<Sent> {
        sent(&self.input(Input::Turn))
    }

    fn answer(&mut self, (master, _, ticket): &Sent, answer: Answer) -> Vec<Effect> {
        let sent_at = at(self.now);
        self.input(Input::Vote(&Vote::new(*master, *ticket, sent_at, answer)))
    }

    /// A caller acquires the lock.
    fn hold(&mut self) -> (RequestId, HoldId) {
        let caller = self.caller(10_000);
        let requests = self.turn();
        let effects = requests.iter().flat_map(|one| self.answer(one, Answer::granted()));
        let won = effects.collect::<Vec<_>>().into_iter().find_map(|effect| match effect {
            Effect::Won { caller: by, hold, .. } if by == caller => Some(hold),
            _ => None,
        });
        (caller, won.expect("the lock is won"))
    }

    fn returned(&mut self, hold: HoldId) -> Vec<Effect> {
        let returned = Returned { hold, lost: None, is_token_known: false, reply: None };
        self.input(Input::Returned(returned))
    }
}

fn sent(effects: &[Effect]) -> Vec<Sent> {
    let one = |effect: &Effect| match effect {
        Effect::Send { masters, op, ticket, .. } => {
            masters.iter().map(|master| (master, op.verb(), ticket.pack())).collect()
        }
        _ => Vec::new(),
    };
    effects.iter().flat_map(one).collect()
}

fn is_release(sent: &Sent) -> bool {
    matches!(sent.1, Verb::Release)
}

#[test]
fn an_attempt_whose_caller_is_gone_is_released() {
    let mut world = World::new();
    let caller = world.caller(10_000);
    let requests = world.turn();
    assert_eq!(requests.len(), 3);
    world.input(Input::Withdrawn(caller));
    let effects: Vec<_> =
        requests.iter().flat_map(|one| world.answer(one, Answer::granted())).collect();
    let hold = effects.iter().find_map(|effect| match effect {
        Effect::Won { hold, .. } => Some(*hold),
        _ => None,
    });
    world.input(Input::Untaken(hold.expect("the shell finds out that nobody is there")));
    let releases = world.turn();
    assert!(releases.len() == 3 && releases.iter().all(is_release), "{releases:?}");
}

#[test]
fn waiting_caller_gets_a_returned_lease_without_a_request() {
    let mut world = World::new();
    let (_, hold) = world.hold();
    let next = world.caller(10_000);
    assert_eq!(world.turn(), []);
    let effects = world.returned(hold);
    assert!(effects.iter().any(|effect| matches!(
        effect,
        Effect::Won { caller, hold: HoldId { hand_overs: 1, .. }, .. } if *caller == next
    )));
    assert_eq!(sent(&effects), []);
}

/// The reply of the next caller may be closed although its withdrawal was not read yet.
#[test]
fn untaken_lease_passes_to_the_next_caller() {
    let mut world = World::new();
    let (_, hold) = world.hold();
    world.caller(10_000);
    let last = world.caller(10_000);
    world.returned(hold);
    let hold = HoldId { hand_overs: 1, ..hold };
    let effects = world.input(Input::Untaken(hold));
    assert!(effects.iter().any(|effect| matches!(
        effect,
        Effect::Won { caller, .. } if *caller == last
    )));
    let effects = world.input(Input::Untaken(HoldId { hand_overs: 2, ..hold }));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Won { .. })));
    assert!(world.turn().iter().all(is_release), "no caller is left");
}

#[test]
fn known_votes_are_applied_within_the_same_input() {
    let mut world = World::unconnected();
    let caller = world.caller(0);
    world.now = 1_000;
    world.input(Input::Alarms { seen: at(1_000) });
    // The first connections have timed out, whether or not their nodes have reported that yet.
    let effects = world.input(Input::Turn);
    assert_eq!(sent(&effects), []);
    assert!(effects.iter().any(|effect| matches!(
        effect,
        Effect::Failed(by, _) if *by == caller
    )));
}

#[test]
fn two_clients_with_the_same_inputs_are_equal() {
    let hash = |world: &World| {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        world.client.hash(&mut hasher);
        hasher.finish()
    };
    let mut world = World::new();
    let before = (world.client.clone(), hash(&world));
    world.caller(10_000);
    assert_ne!(before.0, world.client);
    assert_ne!(before.1, hash(&world));
    assert_eq!(World::new().client, before.0);
}
