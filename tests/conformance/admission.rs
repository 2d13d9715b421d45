//! The effect of orders on every node, and its reports about its master.

use redlock_core::admission::{
    Admit, Begin, Identity, Init, MEMBERS, Millis, Names, Nonce, Note, Outcome, Quarantine, Record,
    RecordedSet, Remove, Reply, RunId, Score, Seen, SetChange, SetId, Way,
};

use super::*;

const MAX_TTL: Millis = 200;
/// Never late.
const UNTIL: Millis = Millis::MAX;
/// A little longer than the quarantine that belongs to it.
const LENGTH: Duration = Duration::from_millis(230);
/// The order for a missing record, from no particular client.
const BEGIN: Begin = Begin {
    expect: Seen { max_ttl: None, run: None, id: None, nonce: None },
    identity: Identity::of(RunId::new([0; 20])),
    nonce: Nonce(0),
    max_ttl: MAX_TTL,
    is_outdated: false,
    until: UNTIL,
};

impl Asker {
    fn identity(&self) -> Identity {
        self.facts.identity.expect("a server with 40 digits")
    }

    async fn script(&mut self, order: AdmissionOp) -> Reply {
        match self.admission(order).await {
            Ok(AdmissionReply::Script(reply)) => reply,
            said => panic!("{said:?}"),
        }
    }

    pub(super) async fn read_record(&mut self) -> (Record, Option<u32>) {
        match self.admission(AdmissionOp::ReadFacts).await {
            Ok(AdmissionReply::Facts { facts, members }) => {
                assert_eq!(facts.identity, self.facts.identity);
                (*facts.record.expect("a record"), members)
            }
            said => panic!("{said:?}"),
        }
    }

    pub(super) async fn begin(&mut self, expect: &Record, nonce: u64) -> Reply {
        let (expect, identity, nonce) = (expect.seen(), self.identity(), Nonce(nonce));
        self.script(AdmissionOp::Begin(Begin { expect, identity, nonce, ..BEGIN })).await
    }

    async fn admit(&mut self, nonce: u64, floor: Score) -> Reply {
        self.admit_into(nonce, floor, None).await
    }

    async fn admit_into(&mut self, nonce: u64, floor: Score, set: Option<RecordedSet>) -> Reply {
        let (nonce, identity, way) = (Nonce(nonce), self.identity(), Way::Known);
        let admit = Admit { nonce, identity, way, floor, set, until: UNTIL };
        self.script(AdmissionOp::Admit(admit)).await
    }

    pub(super) async fn init(&mut self, expect: &Record, floor: Score, level: Score) -> Reply {
        self.init_with(expect, floor, level, None).await
    }

    async fn init_with(
        &mut self,
        expect: &Record,
        floor: Score,
        level: Score,
        set: Option<SetChange>,
    ) -> Reply {
        let (expect, identity, nonce) = (expect.seen(), self.identity(), Nonce(9));
        let (max_ttl, lower, converts, until) = (MAX_TTL, false, true, UNTIL);
        let init =
            Init { expect, identity, nonce, max_ttl, lower, floor, level, converts, set, until };
        self.script(AdmissionOp::Init(init)).await
    }

    async fn remove(&mut self, expect: &Record, start: Option<Score>) -> Reply {
        self.script(AdmissionOp::Remove(Remove { expect: expect.seen(), start, until: UNTIL }))
            .await
    }

    async fn highest(&mut self, set: impl Into<Option<Identity>>) -> Option<Score> {
        match self.admission(AdmissionOp::ReadScores(set.into())).await {
            Ok(AdmissionReply::Scores { highest, facts }) => {
                assert_eq!(facts.identity, self.facts.identity);
                highest
            }
            said => panic!("{said:?}"),
        }
    }

    async fn time(&mut self) -> Millis {
        match self.admission(AdmissionOp::ReadTime).await {
            Ok(AdmissionReply::Time { process, time }) => {
                assert_eq!(process, self.identity().run);
                time
            }
            said => panic!("{said:?}"),
        }
    }
}

#[tokio::test]
async fn fresh_master_has_an_identity_and_no_record() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    assert_eq!(node.facts.record, Ok(Box::default()));
    assert_eq!(node.identity().to_string(), node.facts.run_id);
    assert!(node.facts.time_us.is_some() && !node.facts.is_loading());
    assert_eq!(node.read_record().await, (Record::default(), Some(0)));
    let before = node.time().await;
    backend.pass(Duration::from_millis(100)).await;
    assert!(node.time().await >= before + 100);
}

#[tokio::test]
async fn quarantine_runs_from_begin_to_admit() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let begun = node.begin(&Record::default(), 7).await;
    let until = begun.time + MAX_TTL + MAX_TTL / 10;
    let quarantine = Quarantine { id: node.identity(), until, ballot: 0, notes: Vec::new() };
    let expected = Record {
        max_ttl: Some(MAX_TTL),
        nonce: Some(Nonce(7)),
        quarantine: Some(quarantine.clone()),
        ..Record::default()
    };
    assert_eq!((begun.outcome, &begun.record, begun.members), (Outcome::Done, &expected, 0));

    let other = RunId::new([0xab; 20]);
    let note = AdmissionOp::Note(Note { nonce: Nonce(7), times: vec![(other, 5)], until: UNTIL });
    let noted = node.script(note).await.record.quarantine;
    assert_eq!(noted, Some(Quarantine { notes: vec![(other, 5)], ..quarantine }));
    assert_eq!(node.admit(7, 31).await.outcome, Outcome::Early);
    backend.pass(LENGTH).await;
    assert_eq!(node.admit(8, 31).await.outcome, Outcome::Moved);
    let admitted = node.admit(7, 31).await;
    let expected =
        Record { run: node.facts.identity, floor: Some(31), quarantine: None, ..expected };
    assert_eq!((admitted.outcome, admitted.record), (Outcome::Done, expected.clone()));
    assert_eq!(admitted.members, MEMBERS);
    assert_eq!(node.read_record().await, (expected, Some(MEMBERS)));
    assert_eq!(node.highest(node.identity()).await, Some(31));
    assert_eq!(node.highest(Identity::of(other)).await, None);
}

/// The data that the order is based on may have been lost and restored in the meantime.
#[tokio::test]
async fn late_order_does_nothing() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (expect, identity, nonce) = (Record::default().seen(), node.identity(), Nonce(3));
    for is_late in [true, false] {
        let now = node.time().await;
        let until = if is_late { now - 1 } else { now + 60_000 };
        let begin = Begin { expect, identity, nonce, until, ..BEGIN };
        let outcome = node.script(AdmissionOp::Begin(begin)).await.outcome;
        let expected = if is_late { Outcome::Late } else { Outcome::Done };
        assert_eq!((outcome, node.read_record().await.0.nonce.is_some()), (expected, !is_late));
    }
    let until = node.time().await - 1;
    let (record, _) = node.read_record().await;
    let expect = record.seen();
    let (lower, floor, level, converts) = (true, 31, 0, true);
    let (max_ttl, way) = (MAX_TTL, Way::Known);
    let times = vec![(RunId::new([0xab; 20]), 5)];
    for order in [
        AdmissionOp::Init(Init {
            expect,
            identity,
            nonce,
            max_ttl,
            lower,
            floor,
            level,
            converts,
            set: None,
            until,
        }),
        AdmissionOp::Note(Note { nonce, times, until }),
        AdmissionOp::Admit(Admit { nonce, identity, way, floor, set: None, until }),
        AdmissionOp::Remove(Remove { expect, start: Some(31), until }),
    ] {
        assert_eq!(node.script(order).await.outcome, Outcome::Late);
        assert_eq!(node.read_record().await.0, record);
    }
}

/// Locks were longer than the client knew that began it.
#[tokio::test]
async fn too_short_quarantine_is_lengthened_once() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let begun = node.begin(&Record::default(), 7).await.record;
    let until = begun.quarantine.as_ref().unwrap().until;
    for max_ttl in [MAX_TTL - 1, 3 * MAX_TTL, 3 * MAX_TTL, 2 * MAX_TTL] {
        let expect = node.read_record().await.0.seen();
        let (identity, nonce) = (node.identity(), Nonce(8));
        let begin = Begin { expect, identity, nonce, max_ttl, ..BEGIN };
        let longer = node.script(AdmissionOp::Begin(begin)).await.record;
        let is_longer = max_ttl > MAX_TTL || longer.max_ttl != Some(MAX_TTL);
        let more = if is_longer { 2 * MAX_TTL + 2 * MAX_TTL / 10 } else { 0 };
        assert_eq!(longer.nonce, begun.nonce, "it is the same one");
        assert_eq!(longer.quarantine.unwrap().until, until + more, "{max_ttl}");
    }
}

#[tokio::test]
async fn begin_does_nothing_if_the_record_has_changed() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let first = node.begin(&Record::default(), 1).await;
    let second = node.begin(&Record::default(), 2).await;
    assert_eq!((second.outcome, second.record), (Outcome::Moved, first.record));
}

#[tokio::test]
async fn init_admits_once_and_later_only_raises_scores() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let first = node.init(&Record::default(), 63, 0).await;
    assert_eq!((first.outcome, first.members), (Outcome::Done, MEMBERS));
    assert!(first.record.admits(node.identity()));
    let again = node.init(&first.record, 1023, 31).await;
    assert_eq!((again.outcome, &again.record), (Outcome::Done, &first.record));
    assert_eq!(node.highest(node.identity()).await, Some(63), "no floor, and nothing is lowered");
    node.init(&first.record, 1023, 95).await;
    assert_eq!(node.highest(node.identity()).await, Some(95));
    let moved = node.init(&Record::default(), 1023, 1023).await;
    assert_eq!(moved.outcome, Outcome::Moved);
}

#[tokio::test]
async fn admitted_record_is_removed_only_by_an_operator() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let begun = node.begin(&Record::default(), 7).await;
    assert_eq!(node.remove(&Record::default(), None).await.outcome, Outcome::Moved);
    let removed = node.remove(&begun.record, None).await;
    assert_eq!((removed.outcome, removed.record), (Outcome::Done, Record::default()));
    assert_eq!(node.highest(None).await, None, "no ballot is left");

    let admitted = node.init(&Record::default(), 63, 0).await;
    let kept = node.remove(&admitted.record, None).await;
    assert_eq!((kept.outcome, &kept.record), (Outcome::Moved, &admitted.record));
    let removed = node.remove(&admitted.record, Some(31)).await;
    assert_eq!((removed.outcome, removed.record), (Outcome::Done, Record::default()));
    assert_eq!(node.highest(None).await, Some(63), "the larger of the existing values");
    assert_eq!(node.highest(node.identity()).await, None);

    assert_eq!(node.begin(&Record::default(), 8).await.outcome, Outcome::Mixed);
    let converted = node.init(&Record::default(), 31, 0).await;
    assert_eq!((converted.outcome, converted.record.floor), (Outcome::Done, Some(63)));
    assert_eq!(node.highest(None).await, None);
}

/// It keeps quarantines away, and lowers nothing that is there.
#[tokio::test]
async fn client_without_ballots_shows_its_use_by_one_member() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    for _ in 0..2 {
        assert_eq!(node.admission(AdmissionOp::ShowUse).await, Ok(AdmissionReply::Shown));
        assert_eq!(node.highest(None).await, Some(0));
        assert_eq!(node.read_record().await, (Record::default(), Some(1)));
    }
    assert_eq!(node.begin(&Record::default(), 7).await.outcome, Outcome::Mixed);
    let converted = node.init(&Record::default(), 63, 0).await;
    assert_eq!((converted.outcome, converted.record.floor), (Outcome::Done, Some(63)));
    let removed = node.remove(&converted.record, Some(31)).await;
    assert_eq!(removed.outcome, Outcome::Done);
    assert_eq!(node.admission(AdmissionOp::ShowUse).await, Ok(AdmissionReply::Shown));
    assert_eq!(node.highest(None).await, Some(63));
}

#[tokio::test]
async fn connection_reports_the_record_and_then_the_members() {
    let backend = Backend::start().await;
    let admitted = Asker::new(&backend).await.init(&Record::default(), 31, 0).await;
    let mut node = Asker::new(&backend).await;
    assert_eq!(node.facts.record, Ok(Box::new(admitted.record)));
    assert_eq!(node.event().await, NodeEvent::Members(MEMBERS));
}

#[tokio::test]
async fn flush_is_pushed_and_a_later_read_finds_nothing() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    node.init(&Record::default(), 31, 0).await;
    backend.flush().await;
    assert_eq!(node.event().await, NodeEvent::DataLost);
    assert_eq!(node.read_record().await, (Record::default(), Some(0)));
}

#[tokio::test]
async fn without_tracking_lost_data_is_not_pushed() {
    let backend = Backend::without_tracking().await;
    let mut node = Asker::new(&backend).await;
    assert!(!node.facts.tracks);
    node.init(&Record::default(), 31, 0).await;
    let (ours, theirs) = tokens();
    assert_eq!(node.acquire(&ours, LONG).await, Answer::granted());
    backend.flush().await;
    assert_eq!(node.acquire(&theirs, LONG).await, Answer::granted());
    assert_eq!(node.read_record().await, (Record::default(), Some(0)));
    assert!(node.events.try_recv().is_err());
}

#[tokio::test]
async fn admission_and_lock_requests_run_in_submission_order() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (ours, _) = tokens();
    for round in 1..20 {
        node.submit(0, Op::acquire(KEY, ours.clone(), LONG));
        let expect = Record::default().seen();
        let (identity, nonce) = (node.identity(), Nonce(round));
        let begin = Begin { expect, identity, nonce, ..BEGIN };
        node.submit(1, Op::admission(AdmissionOp::Begin(begin)));
        node.submit(2, Op::admission(AdmissionOp::ReadFacts));
        node.submit(3, Op::release(KEY, ours.clone()));
        let mut votes = Vec::new();
        for _ in 0..4 {
            votes.push(node.vote().await);
        }
        votes.sort_by_key(|vote| vote.ticket);
        let mut answers = votes.into_iter().map(|vote| vote.answer);
        assert_eq!(answers.next(), Some(Answer::granted()));
        let begun = answers.next().unwrap().into_admission();
        let Ok(AdmissionReply::Script(reply)) = begun else { panic!("{begun:?}") };
        let expected = if round == 1 { Outcome::Done } else { Outcome::Moved };
        assert_eq!(reply.outcome, expected);
        let read = answers.next().unwrap().into_admission();
        let Ok(AdmissionReply::Facts { facts, .. }) = read else { panic!("{read:?}") };
        assert_eq!(answers.next(), Some(Answer::granted()));
        assert_eq!(facts.record.unwrap().nonce, Some(Nonce(1)));
    }
}

fn set(id: u64, names: &[&str]) -> RecordedSet {
    let size = names.len().try_into().unwrap();
    RecordedSet { id: SetId(id), size, names: Names::new(names.to_vec()) }
}

#[tokio::test]
async fn only_init_changes_a_set_and_only_the_expected_one() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let (three, four) =
        (set(3, &["10.0.0.1:6379", "/run/r 1.sock", "c:1"]), set(4, &["a", "b", "c", "d"]));
    let change = |from: Option<&RecordedSet>, to: &RecordedSet| {
        Some(SetChange { from: from.cloned(), to: to.clone() })
    };
    let first = node.init_with(&Record::default(), 63, 0, change(None, &three)).await;
    assert_eq!((first.outcome, first.record.set.as_ref()), (Outcome::Done, Some(&three)));
    assert_eq!(node.read_record().await.0, first.record, "names are read as they were written");
    for from in [None, Some(&four)] {
        let moved = node.init_with(&first.record, 63, 0, change(from, &four)).await;
        assert_eq!((moved.outcome, moved.record), (Outcome::Moved, first.record.clone()));
    }
    let second = node.init_with(&first.record, 63, 0, change(Some(&three), &four)).await;
    assert_eq!((second.outcome, second.record.set.as_ref()), (Outcome::Done, Some(&four)));
    // As clients write that know of no sets.
    let third = node.init(&second.record, 63, 95).await;
    assert_eq!((third.outcome, third.record.set.as_ref()), (Outcome::Done, Some(&four)));
    let begin = Begin { expect: third.record.seen(), nonce: Nonce(7), is_outdated: true, ..BEGIN };
    let begin = Begin { identity: node.identity(), ..begin };
    let begun = node.script(AdmissionOp::Begin(begin)).await;
    assert_eq!((begun.outcome, begun.record.set.as_ref()), (Outcome::Done, Some(&four)));
    backend.pass(LENGTH).await;
    let kept = node.admit(7, 95).await;
    assert_eq!((kept.outcome, kept.record.set.as_ref()), (Outcome::Done, Some(&four)));
}

#[tokio::test]
async fn admitted_masters_get_the_set_of_the_order() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    node.begin(&Record::default(), 7).await;
    backend.pass(LENGTH).await;
    let three = set(3, &["a", "b", "c"]);
    assert_eq!(node.admit_into(8, 31, Some(three.clone())).await.record.set, None, "moved");
    let admitted = node.admit_into(7, 31, Some(three.clone())).await;
    assert_eq!((admitted.outcome, admitted.record.set), (Outcome::Done, Some(three)));
}
