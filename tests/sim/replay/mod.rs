//! Recordings of all clients of these tests: their inputs, the answers of the present moment, and
//! their effects. Replayed on a fresh client, the inputs have the same effects.
//!
//! Each recording is replayed when its test ends. A client that does not repeat itself ends the
//! process, because a test cannot fail after its end.

mod input;
mod moment;

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use redlock_core::Instant;
use redlock_protocol::client::Client;
use redlock_protocol::client::counts::Count;
use redlock_protocol::client::effects::{Effect, Effects};
use redlock_protocol::client::input::Input;
use redlock_protocol::client::moment::Moment;
use redlock_protocol::client::terms::Terms;
use redlock_quorum::recording::{Tap, tap_all};
use redlock_testkit::SimNodes;
use tokio::time::sleep;

use self::input::Kept;
use self::moment::{Listening, Repeating, Said};
use crate::arena::{RESOURCE, admitted, handle, ms};
use crate::seeds::simulate;

/// After so many inputs, nothing more of a client is recorded.
const STEPS_MAX: usize = 50_000;

/// One client.
struct Recording {
    terms: Terms,
    steps: Vec<Step>,
}

/// One input.
struct Step {
    input: Kept,
    said: Vec<Said>,
    is_traced: bool,
    /// `None` if the client has panicked.
    after: Option<After>,
}

/// What follows from an input.
struct After {
    now: Instant,
    effects: Vec<Effect>,
    counts: Vec<Count>,
    wants_turn: bool,
    /// The whole client, which is hashed less and less often.
    client: Option<u64>,
}

impl After {
    fn of(effects: &mut Effects, client: &Client, nth: usize) -> Self {
        Self {
            now: effects.now,
            effects: effects.list.clone(),
            counts: effects.counts.clone(),
            wants_turn: effects.wants_turn,
            client: nth.is_power_of_two().then(|| hash(client)),
        }
    }

    /// Returns what differs.
    fn differs(&self, other: &Self) -> Option<String> {
        let (ours, theirs) = (&self.effects, &other.effects);
        let pairs = ours.iter().zip(theirs);
        if ours.len() != theirs.len() || !pairs.into_iter().all(|(one, other)| same(one, other)) {
            return Some(format!("effects {ours:?}\nand then {theirs:?}"));
        }
        let rest = |one: &Self| (one.now, one.counts.clone(), one.wants_turn);
        if rest(self) != rest(other) {
            return Some(format!("{:?}\nand then {:?}", rest(self), rest(other)));
        }
        (self.client != other.client).then(|| "the client itself".to_owned())
    }
}

fn hash(client: &Client) -> u64 {
    let mut hasher = DefaultHasher::new();
    client.hash(&mut hasher);
    hasher.finish()
}

/// Requests are compared in all their parts. Their text names only some.
fn same(one: &Effect, other: &Effect) -> bool {
    if let (Effect::Send { op: one, .. }, Effect::Send { op: other, .. }) = (one, other)
        && ((one.token(), one.bid(), one.member()) != (other.token(), other.bid(), other.member())
            || format!("{:?}", (one.mark(), one.entry(), one.exit(), one.admission_op()))
                != format!(
                    "{:?}",
                    (other.mark(), other.entry(), other.exit(), other.admission_op())
                ))
    {
        return false;
    }
    format!("{one:?}") == format!("{other:?}")
}

impl Recording {
    /// Replays the inputs on a fresh client with these terms. Returns how many it handled.
    fn replay(&self, terms: &Terms) -> Result<usize, String> {
        let mut client = Client::new(terms.clone());
        let mut effects = Effects::default();
        for (nth, step) in self.steps.iter().enumerate() {
            let Some(after) = &step.after else { return Ok(nth) };
            effects.is_traced = step.is_traced;
            let mut moment = Repeating::new(&step.said);
            client.handle(step.input.input(), &mut moment, &mut effects);
            let differs = moment.differs();
            let differs = differs.or_else(|| after.differs(&After::of(&mut effects, &client, nth)));
            if let Some(differs) = differs {
                let input = &step.input;
                return Err(format!("input {nth} has other consequences: {input:?}\n{differs}"));
            }
            effects.list.clear();
            effects.counts.clear();
        }
        Ok(self.steps.len())
    }
}

type Shared = Arc<Mutex<Recording>>;

/// The tap of one client.
struct Recorder(Shared);

impl Tap for Recorder {
    fn handle(
        &mut self,
        client: &mut Client,
        input: Input<'_>,
        moment: &mut dyn Moment,
        effects: &mut Effects,
    ) {
        let mut recording = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (nth, is_traced) = (recording.steps.len(), effects.is_traced);
        if nth >= STEPS_MAX {
            return client.handle(input, moment, effects);
        }
        let kept = Kept::of(&input);
        recording.steps.push(Step { input: kept, said: Vec::new(), is_traced, after: None });
        let step = &mut recording.steps[nth];
        client.handle(input, &mut Listening { moment, said: &mut step.said }, effects);
        step.after = Some(After::of(effects, client, nth));
    }
}

/// The clients of one test.
#[derive(Default)]
struct Recordings(Vec<Shared>);

impl Recordings {
    /// Replays all clients, or only those that have ended. Returns the number of inputs.
    fn check(&mut self, only_ended: bool) -> Result<usize, String> {
        let is_due = |shared: &mut Shared| !only_ended || Arc::strong_count(shared) == 1;
        let mut inputs = 0;
        for shared in self.0.extract_if(.., is_due) {
            let recording = shared.lock().unwrap_or_else(PoisonError::into_inner);
            inputs += recording.replay(&recording.terms)?;
        }
        Ok(inputs)
    }
}

/// The end of a test, whose thread ends.
impl Drop for Recordings {
    fn drop(&mut self) {
        if let Err(differs) = self.check(false) {
            eprintln!("a client does not repeat itself: {differs}");
            std::process::abort();
        }
    }
}

thread_local!(static RECORDINGS: RefCell<Recordings> = RefCell::default());

/// Has the clients of this process recorded.
pub(crate) fn record() {
    tap_all(|terms| {
        let recording = Recording { terms: terms.clone(), steps: Vec::new() };
        let shared = Arc::new(Mutex::new(recording));
        RECORDINGS.with_borrow_mut(|recordings| {
            // Clients that have ended take no memory for longer.
            recordings.check(true).expect("a client repeats itself");
            recordings.0.push(shared.clone());
        });
        Box::new(Recorder(shared))
    });
}

/// Replays what this thread has recorded so far. Returns the number of inputs.
pub(crate) fn check() -> Result<usize, String> {
    RECORDINGS.with_borrow_mut(|recordings| recordings.check(false))
}

/// Two clients contend for a key. Returns their recordings.
fn contention() -> Vec<Shared> {
    async fn round(masters: &SimNodes) {
        let (one, other) = (handle(masters).build().unwrap(), handle(masters).build().unwrap());
        for _ in 0..3 {
            let guard = one.lock(RESOURCE).await.unwrap();
            let next = tokio::spawn(other.lock(RESOURCE).into_future());
            sleep(ms(5)).await;
            guard.release().await.unwrap();
            next.await.unwrap().unwrap().release().await.unwrap();
        }
    }
    simulate(async { round(&admitted(3, 0)).await });
    RECORDINGS.with_borrow_mut(|recordings| std::mem::take(&mut recordings.0))
}

#[test]
fn recording_is_replayed_only_with_the_same_seed() {
    let recordings = contention();
    assert_eq!(recordings.len(), 2);
    for shared in recordings {
        let recording = shared.lock().unwrap();
        let inputs = recording.replay(&recording.terms).unwrap();
        assert!(inputs == recording.steps.len() && inputs > 30, "{inputs}");
        let other = Terms { seed: recording.terms.seed + 1, ..recording.terms.clone() };
        recording.replay(&other).unwrap_err();
    }
}

#[test]
fn a_recording_with_a_changed_answer_is_not_repeated() {
    let shared = contention().swap_remove(0);
    let mut recording = shared.lock().unwrap();
    let said = recording.steps.iter_mut().flat_map(|step| &mut step.said);
    said.for_each(Said::forge);
    recording.replay(&recording.terms).unwrap_err();
}
