//! Broken schemes for fencing tokens, which the checker must catch. Each runs on a locker whose
//! only flaw is its tokens.
//!
//! A scheme keeps a counter on a master that grows with each grant there. The counter is read from
//! the master's own log, so it changes when the master executes the request, whenever the answer
//! arrives.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use redlock_core::{Clock, Verb, Verdict};
use redlock_testkit::{
    Contender, Disorder, Event, Fault, History, Nemesis, Record, SimNodes, TokenRule, check,
    check_tokens,
};
use tokio::time::sleep;

use crate::arena::ms;
use crate::exclusion::locker::{GUARD, Lease, Locker, NODE_TIMEOUT};
use crate::seeds;

const SEEDS: u64 = 200;
const LENGTH: Duration = Duration::from_secs(30);
const CONTENDERS: usize = 4;
const RESOURCE: &str = "orders:42";

/// How a token is made of what the masters that granted have said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    /// The largest of a majority's counters.
    Maximum,
    /// The same, written back to the counters of any majority.
    WriteBack,
    /// The largest TIME of a majority, with the number of the contender.
    ServerTime,
}

/// The counter of one master.
#[derive(Default)]
struct Counter {
    value: u64,
    /// The counter after the grant to each token.
    granted: HashMap<String, u64>,
    /// How much of the log was counted.
    read: usize,
}

struct Counters {
    masters: SimNodes,
    counters: Mutex<Vec<Counter>>,
}

impl Counters {
    fn new(masters: SimNodes) -> Arc<Self> {
        let counters = (0..masters.len()).map(|_| Counter::default()).collect();
        Arc::new(Self { masters, counters: Mutex::new(counters) })
    }

    /// Counts the grants up to now, and returns what each master counted for this one.
    fn granted(&self, token: &str) -> Vec<(usize, u64)> {
        let mut counters = self.counters.lock().unwrap();
        for (master, counter) in self.masters.iter().zip(counters.iter_mut()) {
            counter.read(&master.log());
        }
        let counted = counters.iter().enumerate();
        counted.filter_map(|(i, one)| Some((i, *one.granted.get(token)?))).collect()
    }

    fn write_back(&self, masters: &[usize], value: u64) {
        let mut counters = self.counters.lock().unwrap();
        for master in masters {
            counters[*master].value = counters[*master].value.max(value);
        }
    }
}

impl Counter {
    fn read(&mut self, log: &[redlock_testkit::Executed]) {
        for executed in &log[self.read..] {
            let is_grant = executed.verdict == Verdict::Granted;
            if is_grant && matches!(executed.verb, Verb::Acquire { .. }) {
                self.value += 1;
                self.granted.insert(executed.token.clone(), self.value);
            }
        }
        self.read = log.len();
    }
}

impl Scheme {
    fn token(self, lease: &Lease, contender: usize, counters: &Counters, rng: &mut StdRng) -> u64 {
        let granted = counters.granted(lease.token.as_str());
        let quorum = counters.masters.len() / 2 + 1;
        // Those whose answer was read: a majority, and not always the same.
        let read: Vec<_> = granted.sample(rng, quorum).copied().collect();
        let time = |master: usize| counters.masters[master].time_us();
        match self {
            Self::ServerTime => {
                let latest = read.iter().map(|(one, _)| time(*one)).max().unwrap_or(0);
                latest * CONTENDERS as u64 + contender as u64
            }
            Self::Maximum | Self::WriteBack => {
                let largest = read.iter().map(|(_, counted)| *counted).max().unwrap_or(0);
                if self == Self::WriteBack {
                    let all: Vec<usize> = (0..counters.masters.len()).collect();
                    let any: Vec<usize> = all.sample(rng, quorum).copied().collect();
                    counters.write_back(&any, largest);
                }
                largest
            }
        }
    }
}

/// Clocks are stepped, and a request sometimes takes so long that locks are held and released
/// before it arrives.
fn nemesis(seed: u64) -> Nemesis {
    Nemesis::new(seed).at_most(1).faults([Fault::ClockStep]).clock_step_max(GUARD)
}

fn slow(masters: &SimNodes) -> SimNodes {
    let client = masters.another_client();
    for master in client.iter() {
        master.delay(ms(1)..=NODE_TIMEOUT / 2, ms(1)..=ms(2));
    }
    client
}

async fn campaign(seed: u64, scheme: Scheme) -> Vec<Record> {
    let masters = SimNodes::new(3, seed);
    let clients: Vec<_> = (0..CONTENDERS).map(|_| slow(&masters)).collect();
    let counters = Counters::new(masters.clone());
    let history = Arc::new(History::new(masters.clock()));
    let work = clients.iter().enumerate().map(|(contender, client)| {
        let locker = Locker::new(client.nodes(), client.clock(), None);
        let rng = StdRng::seed_from_u64(seed * 1_000 + contender as u64);
        let log = history.contender(contender, RESOURCE);
        contend(locker, contender, scheme, counters.clone(), log, client.clock(), rng)
    });
    let nemesis = nemesis(seed);
    tokio::join!(futures::future::join_all(work), nemesis.run(&clients, LENGTH));
    history.records()
}

async fn contend(
    locker: Locker,
    contender: usize,
    scheme: Scheme,
    counters: Arc<Counters>,
    log: Contender,
    clock: Clock,
    mut rng: StdRng,
) {
    while clock.now().as_nanos() < LENGTH.as_nanos() as u64 {
        log.invoke();
        let Some(lease) = locker.acquire(RESOURCE).await else {
            log.refused();
            sleep(ms(rng.random_range(1..50))).await;
            continue;
        };
        let token = lease.token.to_string();
        let fencing_token = scheme.token(&lease, contender, &counters, &mut rng);
        log.granted(&token, lease.until);
        log.fenced(&token, fencing_token, lease.until);
        sleep(ms(rng.random_range(0..5))).await;
        log.released(&token);
        locker.release(RESOURCE, &lease.token).await;
    }
}

/// Returns the checker's result for the first seed that shows the flaw. If none does, there is no
/// seed to replay.
fn caught(scheme: Scheme) -> Box<Disorder> {
    for seed in 0..SEEDS {
        let history = seeds::simulate(campaign(seed, scheme));
        let claims = check(&history).expect("the locker itself has no flaw");
        let tokens = history.iter().filter(|one| matches!(one.event, Event::Fenced { .. })).count();
        assert!(claims > 0 && tokens > 0);
        if let Err(found) = check_tokens(&history) {
            println!("{scheme:?} is caught by seed {seed}: {found}");
            return found;
        }
    }
    panic!("{scheme:?} was not caught by any of {SEEDS} seeds");
}

#[test]
fn token_from_the_maximum_of_a_majority_is_caught() {
    caught(Scheme::Maximum);
}

#[test]
fn token_written_back_to_any_majority_is_caught() {
    caught(Scheme::WriteBack);
}

#[test]
fn token_from_server_time_is_caught() {
    assert_ne!(caught(Scheme::ServerTime).rule, TokenRule::Unique, "clocks step back");
}

/// The checker accepts a correct scheme, unlike the three broken ones.
#[test]
fn a_history_with_growing_tokens_passes() {
    let mut history = seeds::simulate(campaign(0, Scheme::Maximum));
    let mut next = 0;
    for record in &mut history {
        if let Event::Fenced { fencing_token, .. } = &mut record.event {
            next += 1;
            *fencing_token = next;
        }
    }
    assert_eq!(check_tokens(&history).map_err(|error| error.to_string()), Ok(next as usize));
}
