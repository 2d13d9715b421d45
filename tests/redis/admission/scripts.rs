//! The scripts of admission on a real server, compared with the expected values.

mod refusals;

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use redlock_core::Member;
use redlock_core::admission::{
    AdmissionOp, AdmissionReply, Admit, Begin, Identity, Init, MEMBERS, Millis, Names, Nonce, Note,
    Quarantine, Record, RecordedSet, Remove, Reply, SCORE_END, Score, SetChange, SetId, Way,
    quarantine_length,
};
use redlock_testkit::{Ballots, Data, RedisServer, ServerOptions};
use tokio::task::JoinSet;

use crate::connection::driven::Driven;

const PREFIX: &str = "locks:";
const RECORD: &str = "locks:redlock-quorum:1";
const OFF: &str = "locks:redlock-quorum:1:ballots";
/// The seeds of one run of the comparison, and the orders after each.
const SEEDS: u64 = 600;
const ORDERS: usize = 4;
/// Each of so many servers gets its share of the seeds.
const LABS: u64 = 4;

/// Makes the members below a number, all with one score but one of them with another. They are too
/// many to send each.
const FILL: &str = "for member = 0, ARGV[1] - 1 do
    local score = member == tonumber(ARGV[4]) and ARGV[3] or ARGV[2]
    redis.call('ZADD', KEYS[1], score, member)
end";

/// A server, a node of it, and a connection of an outsider.
struct Lab {
    node: Driven,
    outsider: redis::Connection,
    _server: RedisServer,
}

impl Lab {
    async fn new() -> Self {
        let server = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
        let mut node = Driven::within(&server.url(), PREFIX);
        node.up().await;
        let outsider = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        Self { node, outsider, _server: server }
    }

    fn run<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(word);
        });
        command.query(&mut self.outsider).unwrap()
    }

    async fn script(&mut self, order: AdmissionOp) -> Reply {
        match self.node.admission(order).await {
            Ok(AdmissionReply::Script(reply)) => reply,
            said => panic!("{said:?}"),
        }
    }

    fn time(&mut self) -> Millis {
        let (secs, micros): (u64, u64) = self.run(&["TIME"]);
        secs * 1_000 + micros / 1_000
    }

    /// Makes the server hold exactly this.
    fn set(&mut self, data: &Data) {
        let mut writes = redis::pipe();
        writes.cmd("FLUSHALL").ignore();
        for (name, value) in fields(&data.record) {
            writes.cmd("HSET").arg(RECORD).arg(name).arg(value).ignore();
        }
        let off = data.off.clone().map(|ballots| (OFF.to_owned(), ballots));
        let sets = data.sets.iter().map(|(id, ballots)| (set_key(*id), ballots.clone()));
        for (key, ballots) in sets.chain(off) {
            let fill = writes.cmd("EVAL").arg(FILL).arg(1).arg(key).arg(ballots.members);
            fill.arg(0).arg(ballots.highest()).arg(RAISED).ignore();
        }
        writes.query::<()>(&mut self.outsider).unwrap();
    }

    /// Returns the server's data.
    async fn data(&mut self) -> Data {
        let Ok(AdmissionReply::Facts { facts, .. }) =
            self.node.admission(AdmissionOp::ReadFacts).await
        else {
            panic!("the facts");
        };
        let mut sets = Vec::new();
        for id in identities() {
            let members: u32 = self.run(&["ZCARD", &set_key(id)]);
            let scores = self.node.admission(AdmissionOp::ReadScores(Some(id))).await;
            let Ok(AdmissionReply::Scores { highest, .. }) = scores else { panic!("{scores:?}") };
            assert_eq!(members > 0, highest.is_some());
            if let Some(highest) = highest {
                let [floor, raised] = self.run(&["ZMSCORE", &set_key(id), "0", "3"]);
                let ballots = ballots(members, floor, raised);
                assert_eq!(ballots.highest(), highest);
                sets.push((id, ballots));
            }
        }
        sets.sort_unstable_by_key(|(id, _)| *id);
        let members: u32 = self.run(&["ZCARD", OFF]);
        let scores = self.node.admission(AdmissionOp::ReadScores(None)).await;
        let Ok(AdmissionReply::Scores { highest, .. }) = scores else { panic!("{scores:?}") };
        let off = highest.map(|highest| Ballots::new(members, highest));
        Data { record: *facts.record.unwrap(), sets, off }
    }
}

/// The member that may have another score than all others.
const RAISED: u32 = 3;

fn ballots(members: u32, floor: Score, raised: Score) -> Ballots {
    let mut ballots = Ballots::new(members, floor);
    ballots.raise(Member::new(RAISED as u16).unwrap(), raised);
    ballots
}

fn set_key(id: Identity) -> String {
    format!("{OFF}:{}", id.set_name())
}

fn fields(record: &Record) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        fields.extend(value.map(|value| (name.to_owned(), value)));
    };
    add("max_ttl", record.max_ttl.map(|number| number.to_string()));
    add("run", record.run.map(|run| run.to_string()));
    add("floor", record.floor.map(|number| number.to_string()));
    add("q:nonce", record.nonce.map(|nonce| nonce.to_string()));
    add("set", record.set.as_ref().map(RecordedSet::text));
    add("names", record.set.as_ref().map(|set| set.names.text()));
    if let Some(quarantine) = &record.quarantine {
        add("q:id", Some(quarantine.id.to_string()));
        add("q:until", Some(quarantine.until.to_string()));
        add("q:ballot", Some(quarantine.ballot.to_string()));
        for (process, time) in &quarantine.notes {
            add(&format!("q:note:{process}"), Some(time.to_string()));
        }
    }
    fields
}

/// Two processes, each as it was started and with two histories.
fn identities() -> Vec<Identity> {
    let digits = |digit: &str| digit.repeat(40);
    let name = |run: &str, history: &str| match history {
        "" => digits(run),
        history => format!("{}:{}", digits(run), digits(history)),
    };
    let names = ["a", "b"].map(|run| ["", "1", "2"].map(|history| name(run, history)));
    names.as_flattened().iter().map(|name| name.parse().unwrap()).collect()
}

/// Random data and orders, out of few values, so that they often meet.
struct Chance(StdRng);

impl Chance {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        *from.choose(&mut self.0).unwrap()
    }

    fn identity(&mut self) -> Identity {
        self.pick(&identities())
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.0.random_bool(0.7).then(|| make(self))
    }

    fn nonce(&mut self) -> Nonce {
        self.pick(&[Nonce(1), Nonce(u64::MAX), Nonce(0x1234)])
    }

    fn set(&mut self) -> RecordedSet {
        let (id, size) = (SetId(self.pick(&[1, u64::MAX])), self.pick(&[1, 5]));
        let names = self.pick::<&[&str]>(&[&[], &["10.0.0.1:6379"], &["a:1", "/run/r 1"]]);
        RecordedSet { id, size, names: Names::new(names.to_vec()) }
    }

    /// Mostly from the set that is there.
    fn set_change(&mut self, record: &Record) -> SetChange {
        let is_fitting = self.0.random_bool(0.8);
        let from = if is_fitting { record.set.clone() } else { self.maybe(Self::set) };
        SetChange { from, to: self.set() }
    }

    fn max_ttl(&mut self) -> Millis {
        self.pick(&[10, 17, 1_005, 600_000, 86_400_000])
    }

    fn score(&mut self) -> Score {
        self.pick(&[0, 31, 63, 1_763_755_000_000_031, SCORE_END - 1])
    }

    /// About `time`, or about a length before or after it, often to the very millisecond.
    fn instant(&mut self, time: Millis) -> Millis {
        let length = quarantine_length(self.max_ttl());
        let apart = self.0.random_range(0..4);
        let near = time + apart;
        match self.0.random_range(0..4) {
            0 => near.saturating_sub(length),
            1 => near + length,
            2 => near + 2 * length,
            _ => near,
        }
    }

    fn notes(&mut self, time: Millis) -> Vec<(redlock_core::admission::RunId, Millis)> {
        let runs = [self.identity().run, self.identity().run];
        let mut notes: Vec<_> = runs.iter().map(|run| (*run, self.instant(time))).collect();
        notes.sort_unstable();
        notes.dedup_by_key(|(run, _)| *run);
        notes
    }

    fn quarantine(&mut self, time: Millis) -> Quarantine {
        let (id, until) = (self.identity(), self.instant(time));
        Quarantine { id, until, ballot: self.score(), notes: self.notes(time) }
    }

    fn data(&mut self, time: Millis) -> Data {
        let record = Record {
            max_ttl: self.maybe(Self::max_ttl),
            run: self.maybe(Self::identity),
            floor: self.maybe(Self::score),
            nonce: self.maybe(Self::nonce),
            quarantine: self.maybe(|chance| chance.quarantine(time)),
            set: self.maybe(Self::set),
        };
        let mut sets = Vec::new();
        for id in identities() {
            let members = self.pick(&[0, 0, 5, MEMBERS, MEMBERS, MEMBERS + 1]);
            let highest = self.score();
            sets.extend((members > 0).then(|| (id, ballots(members, 0, highest))));
        }
        sets.sort_unstable_by_key(|(id, _)| *id);
        let members = self.pick(&[5, MEMBERS, MEMBERS + 1]);
        let off = Ballots::new(members, self.score());
        Data { record, sets, off: self.0.random_bool(0.1).then_some(off) }
    }

    /// Creates an order that usually expects the present data.
    fn order(&mut self, data: &Data, time: Millis) -> AdmissionOp {
        let record = &data.record;
        let fitting = self.0.random_bool(0.8);
        let mut expect = if fitting { record.seen() } else { self.data(time).record.seen() };
        if self.0.random_bool(0.1) {
            expect.max_ttl = self.maybe(Self::max_ttl);
        }
        let present = [record.run, record.quarantine.as_ref().map(|found| found.id)];
        let identity = present.into_iter().flatten().next_back().filter(|_| fitting);
        let identity = identity.unwrap_or_else(|| self.identity());
        let named = record.nonce.filter(|_| fitting).unwrap_or_else(|| self.nonce());
        let (fresh, max_ttl) = (self.nonce(), self.max_ttl());
        let floor = self.pick(&[31, 95, 1_763_755_000_000_031, SCORE_END - 1, SCORE_END]);
        let way = self.pick(&[Way::Known, Way::Noted]);
        let level = if self.0.random_bool(0.1) { SCORE_END } else { self.score() };
        let lower = self.0.random_bool(0.5);
        let start = self.maybe(|_| floor);
        let until = if self.0.random_bool(0.1) { time - 1 } else { time + 600_000 };
        match self.0.random_range(0..6) {
            0 => {
                let (nonce, is_outdated) = (fresh, self.0.random_bool(0.3));
                AdmissionOp::Begin(Begin { expect, identity, nonce, max_ttl, is_outdated, until })
            }
            1 => AdmissionOp::Note(Note { nonce: named, times: self.notes(time), until }),
            2 | 3 => {
                let (nonce, set) = (named, self.maybe(Self::set));
                AdmissionOp::Admit(Admit { nonce, identity, way, floor, set, until })
            }
            4 => AdmissionOp::Remove(Remove { expect, start, until }),
            _ => {
                let (nonce, converts) = (fresh, self.0.random_bool(0.5));
                let set = self.maybe(|chance| chance.set_change(record));
                AdmissionOp::Init(Init {
                    expect,
                    identity,
                    nonce,
                    max_ttl,
                    lower,
                    floor,
                    level,
                    converts,
                    set,
                    until,
                })
            }
        }
    }
}

fn on_value(data: &mut Data, order: &AdmissionOp, time: Millis) -> Reply {
    match order {
        AdmissionOp::Begin(order) => data.begin(time, order),
        AdmissionOp::Note(order) => data.note(time, order),
        AdmissionOp::Admit(order) => data.admit(time, order),
        AdmissionOp::Init(order) => data.init(time, order),
        AdmissionOp::Remove(order) => data.remove(time, order),
        order => panic!("no script: {order:?}"),
    }
}

/// How often each kind of order came to each outcome.
type Outcomes = BTreeMap<String, u32>;

/// Compares the orders that follow each of `seeds`. TIME is the server's, as it told.
async fn compare(seeds: impl Iterator<Item = u64>) -> Outcomes {
    let (mut lab, mut outcomes) = (Lab::new().await, Outcomes::new());
    for seed in seeds {
        let mut chance = Chance(StdRng::seed_from_u64(seed));
        let time = lab.time();
        let mut data = chance.data(time);
        lab.set(&data);
        for step in 0..ORDERS {
            let order = chance.order(&data, lab.time());
            let before = data.clone();
            let reply = lab.script(order.clone()).await;
            let expected = on_value(&mut data, &order, reply.time);
            let context = || format!("seed {seed}, step {step}: {order:?} on {before:?}");
            assert_eq!(reply, expected, "{}", context());
            assert_eq!(lab.data().await, data, "{}", context());
            let outcome = format!("{:.5} {:?}", format!("{order:?}"), reply.outcome);
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
    outcomes
}

/// Every reply and all data are the same after each order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lua_scripts_match_the_simulated_master() {
    let share = |lab| (0..SEEDS).filter(move |seed| seed % LABS == lab);
    let mut labs: JoinSet<Outcomes> = (0..LABS).map(|lab| compare(share(lab))).collect();
    let mut outcomes = Outcomes::new();
    while let Some(of_lab) = labs.join_next().await {
        for (outcome, count) in of_lab.unwrap() {
            *outcomes.entry(outcome).or_default() += count;
        }
    }
    // Begin, note and init have the outcomes Done, Moved, Mixed and Late; admit also has Early and
    // TooLarge.
    assert!(outcomes.len() >= 22 && outcomes.values().all(|count| *count >= 5), "{outcomes:?}");
}
