//! Every combination of what three masters may be.

use super::*;

/// The possible states of a master for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Away,
    Replica,
    Loading,
    Admitted,
    /// Admitted as a former replica, which it no longer reports.
    Flipped,
    /// Restarted with its record.
    Restarted,
    /// A failover and back: the same process, another history.
    Replaced,
    NoRecord,
    Incomplete,
    Waiting,
    /// In quarantine under the identity of a former process.
    WaitingFormer,
    /// The end of its quarantine lies too far ahead.
    FarAhead,
}

const KINDS: [Kind; 12] = [
    Kind::Away,
    Kind::Replica,
    Kind::Loading,
    Kind::Admitted,
    Kind::Flipped,
    Kind::Restarted,
    Kind::Replaced,
    Kind::NoRecord,
    Kind::Incomplete,
    Kind::Waiting,
    Kind::WaitingFormer,
    Kind::FarAhead,
];

fn master(kind: Kind, run: u64) -> Master {
    let mut master = Master::admitted(run);
    match kind {
        Kind::Away => master.up = false,
        Kind::Replica => master.role = MasterKind::Replica,
        Kind::Loading => master.role = MasterKind::Loading { uptime: 0 },
        Kind::Admitted => {}
        Kind::Flipped => master.data.record.run = Some(former_replica(run, 7)),
        Kind::Restarted => master.identity = identity(run + 1),
        Kind::Replaced => master.identity = former_replica(run, 8),
        Kind::NoRecord => master.data = Data::default(),
        Kind::Incomplete => master.data.sets.clear(),
        Kind::Waiting => wait(&mut master, identity(run), LENGTH),
        Kind::WaitingFormer => wait(&mut master, identity(run + 1), LENGTH),
        Kind::FarAhead => wait(&mut master, identity(run), 100 * LENGTH),
    }
    if kind == Kind::Flipped {
        master.data.sets[0].0 = former_replica(run, 7);
    }
    master
}

fn wait(master: &mut Master, id: Identity, left: Millis) {
    let until = EPOCH + left;
    master.data.record.run = None;
    master.data.record.quarantine = Some(Quarantine { id, until, ballot: 0, notes: Vec::new() });
    master.data.sets.clear();
}

impl Kind {
    fn votes(self) -> bool {
        matches!(self, Self::Admitted | Self::Flipped)
    }

    fn tells_a_record(self) -> bool {
        !matches!(self, Self::Away | Self::Replica | Self::Loading)
    }

    /// Returns the first step of a client that wants a lock.
    fn step(self, all: [Self; 3]) -> &'static str {
        let voting = all.into_iter().filter(|kind| kind.votes()).count();
        match self {
            Self::Away | Self::Admitted | Self::Flipped => "nothing",
            Self::Replica | Self::Loading => "wait",
            Self::Waiting if voting > 0 => "ask",
            Self::Waiting => "wait",
            _ if tells_records(all) && !all.contains(&Self::Loading) => "records",
            _ => "wait",
        }
    }
}

/// Whether a quarantine can be begun, now or in a while: the records of a quorum can be read.
fn tells_records(all: [Kind; 3]) -> bool {
    all.into_iter().filter(|kind| kind.tells_a_record()).count() >= 2
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::Nothing => "nothing",
        Step::Probe => "probe",
        Step::ReadRecords(_) => "records",
        Step::Begin(_) => "begin",
        Step::AskTimes(..) => "ask",
        Step::Note(_) => "note",
        Step::ReadFloor(..) => "read",
        Step::Admit(_) => "admit",
        Step::Remove(_) => "remove",
        Step::ShowUse => "show",
        Step::Wait(_) => "wait",
    }
}

fn combinations() -> impl Iterator<Item = [Kind; 3]> {
    let pairs = KINDS.into_iter().flat_map(|a| KINDS.into_iter().map(move |b| (a, b)));
    pairs.flat_map(|(a, b)| KINDS.into_iter().map(move |c| [a, b, c]))
}

fn masters(kinds: [Kind; 3]) -> Vec<Master> {
    kinds.into_iter().zip([10, 20, 30]).map(|(kind, run)| master(kind, run)).collect()
}

#[test]
fn master_votes_only_if_run_equals_its_identity() {
    for kinds in combinations() {
        let admission = client(&masters(kinds), 0);
        for (index, kind) in kinds.into_iter().enumerate() {
            assert_eq!(admission.votes(index), kind.votes(), "{kinds:?}, master {index}");
            assert_eq!(admission.why(index, 0).is_none(), kind.votes(), "{kinds:?}");
        }
    }
}

#[test]
fn the_next_step_follows_from_the_facts_of_all_masters() {
    for kinds in combinations() {
        let mut admission = client(&masters(kinds), 0);
        for (index, kind) in kinds.into_iter().enumerate() {
            let step = admission.step(index, 0, Nonce(1));
            assert_eq!(name(&step), kind.step(kinds), "{kinds:?}, master {index}");
        }
    }
}

#[test]
fn read_only_handle_writes_nothing() {
    for kinds in combinations() {
        let masters = masters(kinds);
        let mut admission = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN);
        for (index, master) in masters.iter().enumerate().filter(|(_, master)| master.up) {
            admission.on(index, Event::Up(master.facts(0)), 0);
        }
        for index in 0..3 {
            let step = admission.step(index, 0, Nonce(1));
            assert!(matches!(step, Step::Nothing | Step::Wait(1000)), "{kinds:?}: {step:?}");
        }
    }
}

#[test]
fn long_lived_client_admits_every_master_possible() {
    for kinds in combinations() {
        let mut masters = masters(kinds);
        let mut admission = client(&masters, 0);
        for now in (0..=4 * LENGTH).step_by(100) {
            settle(&mut admission, &mut masters, now);
        }
        for (index, kind) in kinds.into_iter().enumerate() {
            let can = match kind {
                Kind::Away | Kind::Replica | Kind::Loading => false,
                Kind::Waiting => true,
                kind => kind.votes() || tells_records(kinds),
            };
            assert_eq!(admission.votes(index), can, "{kinds:?}, master {index}");
        }
    }
}

#[test]
fn no_master_is_admitted_before_the_length_has_passed() {
    for kinds in combinations() {
        let mut masters = masters(kinds);
        let mut admission = client(&masters, 0);
        for now in (0..LENGTH).step_by(50) {
            settle(&mut admission, &mut masters, now);
            for (index, kind) in kinds.into_iter().enumerate() {
                assert!(kind.votes() || !admission.votes(index), "{kinds:?}, master {index}");
            }
        }
    }
}
