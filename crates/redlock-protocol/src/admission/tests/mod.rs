//! The machine, with masters that are plain values.

mod combinations;
mod init;
mod lengths;
mod past;
mod quarantine;
mod scripts;
mod sets;
mod views;
mod votes;

use redlock_core::admission::{
    Admit, Begin, Identity, Init, MEMBERS, Names, Note, Outcome, Quarantine, ReplId, Reply,
    SCORE_END, Seen, SetId, Way,
};
use redlock_core::{Member, NotAdmitted};
use redlock_testkit::{Ballots, Data};

use super::*;

/// The longest TTL of these tests, in ms, and the length of their quarantines.
const MAX_TTL: Millis = 1000;
const LENGTH: Millis = 1100;
/// The ballots left by clients without quarantine.
fn off_set() -> Option<Ballots> {
    Some(Ballots::new(5, 95))
}
/// How long scripts may act.
const ACT_WITHIN: Millis = 2000;
/// The deadline of scripts in these tests: no script is late.
const UNTIL: Millis = Millis::MAX;
/// TIME at the start of a test.
const EPOCH: Millis = 1_000_000;

/// The member of the only resource.
fn member() -> Member {
    Member::of(b"k")
}

/// A master that answers immediately.
#[derive(Clone, Debug)]
struct Master {
    identity: Identity,
    role: MasterKind,
    up: bool,
    data: Data,
    /// How far its clock is ahead, in ms.
    ahead: Millis,
}

fn process(number: u64) -> RunId {
    RunId::new(digits(number))
}

fn identity(run: u64) -> Identity {
    Identity::of(process(run))
}

fn former_replica(run: u64, replid: u64) -> Identity {
    Identity { run: process(run), replid: Some(ReplId::new(digits(replid))) }
}

/// The number is in the digits that name a ballot set.
fn digits(number: u64) -> [u8; 20] {
    let mut digits = [0; 20];
    digits[..8].copy_from_slice(&number.to_be_bytes());
    digits
}

impl Master {
    fn fresh(run: u64) -> Self {
        let identity = identity(run);
        Self { identity, role: MasterKind::Master, up: true, data: Data::default(), ahead: 0 }
    }

    fn admitted(run: u64) -> Self {
        let mut master = Self::fresh(run);
        let init = master.init_order(run);
        assert_eq!(master.data.init(EPOCH, &init).outcome, Outcome::Done);
        master
    }

    fn init_order(&self, nonce: u64) -> Init {
        let (expect, identity, nonce) = (self.data.record.seen(), self.identity, Nonce(nonce));
        let (max_ttl, lower, floor, level, converts) = (MAX_TTL, false, 31, 0, false);
        let (set, until) = (None, UNTIL);
        Init { expect, identity, nonce, max_ttl, lower, floor, level, converts, set, until }
    }

    fn time(&self, now: Millis) -> Millis {
        EPOCH + self.ahead + now
    }

    fn facts(&self, now: Millis) -> MasterView {
        let (role, identity, record) = (self.role, self.identity, self.data.record.clone());
        let off = self.data.off.as_ref().map_or(0, |off| off.members);
        let members = if record.run.is_some() { self.data.members() } else { off };
        MasterView { role, identity, time: self.time(now), record, members: Some(members) }
    }

    fn scored(&self, master: usize, asked: Incarnation, now: Millis) -> Scored {
        let ballots = match asked.run {
            Some(run) => self.data.ballots(run),
            None => self.data.off.as_ref(),
        };
        let highest = ballots.map(Ballots::highest);
        Scored { master, asked, highest, facts: self.facts(now) }
    }

    /// A new process, without data.
    fn restart(&mut self, run: u64) {
        *self = Self { ahead: self.ahead, ..Self::fresh(run) };
    }
}

/// The list that names these masters by their places, with the id of a new set.
fn listed(masters: &[Master]) -> Listed {
    let names = (0..masters.len()).map(|place| format!("m{place}"));
    Listed { names: Names::new(names), fresh: SetId(0xf0) }
}

/// A client that is connected to all masters that are up.
fn client(masters: &[Master], now: Millis) -> Admission {
    connected(Admission::new(masters.len(), MAX_TTL, 1000, ACT_WITHIN), masters, now)
}

fn connected(mut admission: Admission, masters: &[Master], now: Millis) -> Admission {
    admission.ask();
    for (index, master) in masters.iter().enumerate().filter(|(_, master)| master.up) {
        admission.on(index, Event::Up(master.facts(now)), now);
    }
    admission
}

/// Breaks the connection to this master and makes a new one.
fn reconnect(admission: &mut Admission, masters: &[Master], index: usize, now: Millis) {
    admission.on(index, Event::Down, now);
    admission.on(index, Event::Up(masters[index].facts(now)), now);
}

/// The first master has lost its record, and the client reads the records of the others.
fn read_records(admission: &mut Admission, masters: &mut [Master], now: Millis) {
    let step = admission.step(0, now, Nonce(1));
    let Some(("records", event)) = carry_out(step, 0, masters, now) else {
        panic!("a quarantine is to be begun")
    };
    admission.on(0, event, now);
}

/// Carries out steps until none is left. Returns their names in order.
fn settle(admission: &mut Admission, masters: &mut [Master], now: Millis) -> Vec<&'static str> {
    let mut names = Vec::new();
    for _ in 0..50 {
        let before = names.len();
        for index in 0..masters.len() {
            let step = admission.step(index, now, Nonce(1000 + names.len() as u64 + now));
            if let Some((name, event)) = carry_out(step, index, masters, now) {
                names.push(name);
                admission.on(index, event, now);
            }
        }
        if names.len() == before {
            return names;
        }
    }
    panic!("it never comes to rest: {names:?}");
}

fn carry_out(
    step: Step,
    index: usize,
    masters: &mut [Master],
    now: Millis,
) -> Option<(&'static str, Event)> {
    let time = masters[index].time(now);
    let told = |master: usize| MasterTime {
        master,
        process: masters[master].identity.run,
        time: masters[master].time(now),
    };
    Some(match step {
        Step::Nothing | Step::Wait(_) => return None,
        Step::Probe => ("probe", Event::Probed(masters[index].facts(now))),
        Step::ReadRecords(asked) => {
            let facts = |other: usize| Some((other, masters.get(other)?.facts(now)));
            ("records", Event::Records(asked.into_iter().filter_map(facts).collect()))
        }
        Step::AskTimes(nonce, asked) => {
            ("ask", Event::Times(nonce, asked.into_iter().map(told).collect()))
        }
        Step::ReadFloor(nonce, asked) => {
            let asked = asked.into_iter();
            let answers =
                asked.map(|(other, incarnation)| masters[other].scored(other, incarnation, now));
            ("read", Event::Floors(nonce, answers.collect()))
        }
        Step::Begin(order) => ("begin", Event::Script(masters[index].data.begin(time, &order))),
        Step::Note(order) => ("note", Event::Script(masters[index].data.note(time, &order))),
        Step::Admit(order) => ("admit", Event::Script(masters[index].data.admit(time, &order))),
        Step::ShowUse => {
            masters[index].data.show_use();
            ("show", Event::Shown)
        }
        Step::Remove(order) => ("remove", Event::Script(masters[index].data.remove(time, &order))),
    })
}

fn not_admitted(admission: &Admission, master: usize, now: Millis) -> NotAdmitted {
    match admission.why(master, now) {
        Some(Why::NotAdmitted(said)) => said,
        other => panic!("{other:?}"),
    }
}
