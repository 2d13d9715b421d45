//! `Masters` as inputs and the news that follow.

use redlock_core::Answer;
use redlock_core::admission::{
    AdmissionOp, AdmissionReply, Identity, MEMBERS, Nonce, Record, RecordedSet, RunId, SetId,
};
use redlock_core::{Cause, Facts, NodeEvent, Vote};

use super::*;
use crate::client::ids::Asker;
use crate::client::view::{Points, Purpose, Voters};
use crate::lab::{Still, at, ms};
use crate::votes::answer::Counts;

fn terms(has_quarantine: bool) -> Terms {
    Terms {
        names: Names::new(["a", "b", "c"]),
        fencing: has_quarantine,
        has_quarantine,
        wants_queue: true,
        max_ttl: ms(60_000),
        is_max_ttl_given: false,
        act_within: ms(2_000),
        order_timeout: ms(100),
        node_timeout: ms(50),
        connect_timeout: ms(1_000),
    }
}

/// The masters of one client, and the news of its last input.
struct Client {
    masters: Masters,
    now: u64,
}

impl Client {
    fn new(has_quarantine: bool) -> Self {
        let mut masters = Masters::new(terms(has_quarantine));
        masters.connect(at(1_000));
        Self { masters, now: 0 }
    }

    /// Three admitted masters with connections.
    fn connected() -> Self {
        let mut client = Self::new(true);
        (0..3).for_each(|master| drop(client.up(master)));
        assert_eq!(client.masters.voting(), MasterSet::all(3));
        client
    }

    fn input(&mut self, input: impl FnOnce(&mut Masters, &mut Context<'_>)) -> Vec<News> {
        let (mut news, now) = (Vec::new(), at(self.now));
        input(&mut self.masters, &mut Context { now, news: &mut news, moment: &mut Still(now) });
        news
    }

    fn event(&mut self, master: usize, event: NodeEvent) -> Vec<News> {
        self.input(|masters, cx| masters.event(master, event, cx))
    }

    fn up(&mut self, master: usize) -> Vec<News> {
        self.event(master, NodeEvent::Up(facts(master as u8)))
    }

    fn down(&mut self, master: usize, cause: Cause) -> Vec<News> {
        self.event(master, NodeEvent::Down { cause, retries_now: false })
    }

    /// Waits for the alarm of a master, and returns what it leads to.
    fn alarm(&mut self, master: usize) -> Vec<News> {
        let due = self.masters.alarm(master).expect("an alarm is to be set");
        self.now = due.as_nanos() / 1_000_000;
        self.input(|masters, cx| masters.tick(master, due, cx))
    }

    fn told(&mut self, asker: Asker, master: usize, said: AdmissionReply) -> Vec<News> {
        self.input(|masters, cx| masters.told(asker, master, &Ok(said), cx))
    }
}

fn record(process: u8) -> Record {
    let run = Some(Identity::of(RunId::new([process; 20])));
    Record {
        run,
        nonce: Some(Nonce(1)),
        max_ttl: Some(60_000),
        floor: Some(31),
        ..Record::default()
    }
}

/// Returns the facts of an admitted server.
fn facts(process: u8) -> Facts {
    let mut facts = Facts::master(format!("{process:02x}").repeat(20));
    facts.record = Ok(record(process).into());
    facts.time_us = Some(1_000_000);
    (facts.tracks, facts.no_queue) = (true, None);
    facts
}

fn probed(process: u8) -> AdmissionReply {
    AdmissionReply::Facts { facts: facts(process), members: Some(MEMBERS) }
}

/// Returns the requests in `news` with their askers.
fn asked(news: &[News]) -> Vec<(usize, AdmissionOp, Asker)> {
    let of = |news: &News| match news {
        News::Ask(master, op, asker) => Some((*master, (**op).clone(), *asker)),
        _ => None,
    };
    news.iter().filter_map(of).collect()
}

/// The only request about admission, which is a probe.
fn probe(news: &[News]) -> Asker {
    match asked(news)[..] {
        [(_, AdmissionOp::ReadFacts, asker)] => asker,
        ref other => panic!("not a probe: {other:?}"),
    }
}

#[test]
fn an_admitted_master_votes_as_soon_as_it_is_connected() {
    let mut client = Client::new(true);
    let news = client.up(1);
    let identity = Some(Identity::of(RunId::new([1; 20])));
    let expected = [
        News::Up(1),
        News::Admitted(1, identity),
        News::Counting(1),
        News::Voting(1),
        News::ListWarning(None),
        News::Reached(1),
    ];
    assert_eq!(news, expected);
    assert!(client.masters.votes(1) && !client.masters.has_votes());
    assert!(client.up(0).contains(&News::PausesOver), "a quorum votes");
}

#[test]
fn answers_to_requests_sent_before_a_master_voted_are_invalid() {
    let mut client = Client::new(true);
    client.now = 5;
    client.up(1);
    let counts = |sent| {
        let vote = Vote::new(1, 0, at(sent), Answer::granted());
        client.masters.counts(&vote, at(9))
    };
    assert!(matches!(counts(4), Counts::Not(Cause::NotAdmitted(_))));
    assert_eq!(counts(5), Counts::Yes);
}

#[test]
fn only_an_exited_or_replaced_process_has_dropped_its_requests() {
    let mut client = Client::connected();
    assert!(!client.down(0, Cause::TimedOut).contains(&News::ProcessEnded(0)));
    assert!(!client.up(0).contains(&News::ProcessEnded(0)), "the same process");
    client.down(0, Cause::TimedOut);
    let restarted = client.event(0, NodeEvent::Up(facts(9)));
    assert!(restarted.contains(&News::ProcessEnded(0)));
    assert!(restarted.iter().any(|news| matches!(news, News::Disowned(0, _))));
    let refused = client.down(1, Cause::ConnectionRefused);
    assert!(refused.contains(&News::ProcessEnded(1)) && refused.contains(&News::LostSight(1)));
}

#[test]
fn keys_of_a_proven_master_are_read_once_per_second() {
    let mut client = Client::connected();
    for times in 0..3 {
        let asker = probe(&client.event(0, NodeEvent::DataLost));
        assert!(!client.masters.votes(0), "until the probe is answered");
        let news = client.told(asker, 0, probed(0));
        assert!(client.masters.votes(0) && news.contains(&News::Voting(0)));
        assert_eq!(news.contains(&News::Proven(0)), times == 0, "{times}");
        client.now += 10;
    }
    // The last two reports are followed by one batch.
    let begun = client.now - 30;
    assert!(client.alarm(0).contains(&News::Proven(0)));
    assert_eq!(client.now - begun, 1_000);
    assert_eq!(client.masters.alarm(0), Some(at(client.now + 1_000)));
    assert_eq!(client.input(|masters, cx| masters.tick(0, at(9_000), cx)), []);
}

#[test]
fn unproven_master_is_disowned_after_its_deadline() {
    let mut client = Client::connected();
    probe(&client.event(0, NodeEvent::DataLost));
    let news = client.alarm(0);
    assert_eq!(client.now, 100);
    let cause = client.masters.cause(0, at(100));
    let disowned = news.iter().position(|news| *news == News::Disowned(0, cause.clone()));
    let unproven = news.iter().position(|news| *news == News::Unproven(0));
    assert!(disowned.is_some() && disowned < unproven, "{news:?}");
}

#[test]
fn without_a_quarantine_only_keys_prove_the_data() {
    let mut client = Client::new(false);
    let plain = || {
        let mut facts = facts(0);
        facts.record = Ok(Record::default().into());
        facts
    };
    client.event(0, NodeEvent::Up(plain()));
    assert!(client.masters.votes(0));
    let news = client.event(0, NodeEvent::DataLost);
    assert!(news.iter().any(|news| matches!(news, News::Suspected(0, _))), "{news:?}");
    let unproven = client.alarm(0);
    assert_eq!((client.now, unproven.contains(&News::Unproven(0))), (50, true));
}

#[test]
fn a_late_answer_to_a_step_does_not_end_the_next() {
    let mut client = Client::connected();
    let first = probe(&client.event(0, NodeEvent::DataLost));
    client.down(0, Cause::TimedOut);
    client.up(0);
    let second = probe(&client.event(0, NodeEvent::DataLost));
    assert_ne!(first, second);
    client.told(first, 0, probed(0));
    assert!(!client.masters.votes(0), "the probe is still under way");
    client.told(second, 0, probed(0));
    assert!(client.masters.votes(0));
}

#[test]
fn an_alarm_replaces_only_a_later_one() {
    let mut client = Client::connected();
    client.event(0, NodeEvent::DataLost);
    assert_eq!(client.masters.alarm(0), Some(at(100)));
    assert_eq!(client.masters.alarm(0), None, "it is set");
    client.masters.park();
    assert_eq!(client.masters.alarm(0), None, "nothing is under way");
}

#[test]
fn attempts_wait_for_steps_no_longer_than_the_connect_timeout() {
    let mut client = Client::connected();
    let until = client.masters.close_gate(|| false, at(0));
    assert_eq!(until, Some(at(1_000)));
    assert_eq!(client.masters.close_gate(|| true, at(1)), None, "it is closed");
    let mut emptied = facts(0);
    emptied.record = Ok(Record::default().into());
    client.masters.ask();
    (0..2).for_each(|master| drop(client.down(master, Cause::TimedOut)));
    let news = client.event(0, NodeEvent::Up(emptied));
    assert!(!asked(&news).is_empty(), "a step is under way");
    assert!(client.masters.awaits_admission(|| at(999)));
    assert!(!client.masters.awaits_admission(|| at(1_000)));
    assert!(!client.masters.awaits_admission(|| at(0)), "the gate stays open");
    assert!(client.masters.close_gate(|| true, at(2_000)).is_some(), "after an idle time");
}

#[test]
fn with_a_quorum_of_votes_no_attempt_waits() {
    let mut client = Client::connected();
    client.masters.close_gate(|| false, at(0));
    assert!(!client.masters.awaits_admission(|| at(0)));
}

#[test]
fn a_new_connection_is_urgent_while_a_lease_is_held() {
    let mut client = Client::connected();
    assert!(client.masters.set_holding(true).is_empty(), "all are connected");
    assert!(client.down(2, Cause::TimedOut).contains(&News::Urgent(2, true)));
    assert_eq!(client.masters.set_holding(false), [(2, false)]);
    assert!(!client.masters.links().is_urgent(2));
    assert_eq!(client.masters.set_holding(true), [(2, true)]);
    assert!(client.up(2).contains(&News::Urgent(2, false)));
}

#[test]
fn suspected_or_unreachable_master_is_not_a_meeting_point() {
    let mut client = Client::connected();
    let meet = |client: &Client, now| {
        client.masters.meeting_point(b"key", MasterSet::EMPTY, at(now)).unwrap()
    };
    let first = meet(&client, 0);
    client.masters.suspect(first, at(500));
    let second = meet(&client, 500);
    assert_ne!(first, second, "it has not answered since");
    client.masters.heard(first);
    assert_eq!([499, 500].map(|now| meet(&client, now)), [second, first]);
    client.masters.suspect(first, at(500));
    client.up(first);
    assert_eq!(meet(&client, 500), first, "the new connection owes no answer");
    client.down(first, Cause::TimedOut);
    assert_eq!(meet(&client, 500), second);
    let avoided = MasterSet::from_iter([second]);
    let third = client.masters.meeting_point(b"key", avoided, at(500)).unwrap();
    assert!(![first, second].contains(&third));
    assert!(client.masters.has_queue(second));
    client.event(second, NodeEvent::NoQueue("no right".into()));
    assert!(!client.masters.has_queue(second));
}

#[test]
fn only_old_facts_are_read_again() {
    let mut client = Client::connected();
    client.now = 20_000;
    client.told(Asker::Fresh, 1, probed(1));
    client.now = 30_000;
    let mut next = Instant::ORIGIN;
    let news = client.input(|masters, cx| next = masters.refresh(0.5, cx));
    let of = |master| (master, AdmissionOp::ReadFacts, Asker::Fresh);
    assert_eq!(asked(&news), [of(0), of(2)]);
    assert_eq!(next, at(90_000));
}

#[test]
fn slow_first_connection_times_out() {
    let mut client = Client::new(true);
    assert_eq!(client.masters.obstacle(0, Purpose::Acquire, at(999)), None);
    assert_eq!(client.masters.obstacle(0, Purpose::Acquire, at(1_000)), Some(Cause::TimedOut));
    client.up(0);
    assert_eq!(client.masters.obstacle(0, Purpose::Acquire, at(1_000)), None);
    client.down(0, Cause::TimedOut);
    assert_eq!(client.masters.obstacle(0, Purpose::Acquire, at(1_000)), None, "its node answers");
}

/// An extension is proven by masters that have the token. If the list is too short, the copies on
/// the other masters of the set would expire.
#[test]
fn resume_is_refused_only_if_the_list_is_too_short() {
    for (sets, is_too_short) in
        [([(1, 3), (2, 3), (3, 3)], false), ([(1, 1); 3], false), ([(1, 5); 3], true)]
    {
        let mut client = Client::new(true);
        for (master, (id, size)) in (0..).zip(sets) {
            let mut facts = facts(master);
            let set = Some(RecordedSet { id: SetId(id), size, names: Names::default() });
            facts.record = Ok(Record { set, ..record(master) }.into());
            client.event(master.into(), NodeEvent::Up(facts));
        }
        let refused = |purpose| client.masters.refused(purpose);
        let of_lease = if is_too_short { MasterSet::all(3) } else { MasterSet::EMPTY };
        assert_eq!(refused(Purpose::Acquire), MasterSet::all(3), "{sets:?}");
        assert_eq!(refused(Purpose::Resume), of_lease, "{sets:?}");
        assert_eq!(refused(Purpose::Other), MasterSet::EMPTY, "{sets:?}");
        let obstacle = client.masters.obstacle(0, Purpose::Resume, at(0));
        assert_eq!(obstacle.is_some(), is_too_short, "{sets:?}");
    }
}

#[test]
fn duplicate_address_is_not_queried() {
    let mut client = Client::new(true);
    client.up(0);
    client.event(1, NodeEvent::Up(facts(0)));
    assert_eq!(client.masters.voting().len(), 1);
    let twin = (0..2).find(|master| !client.masters.votes(*master)).unwrap();
    assert!(matches!(client.masters.obstacle(twin, Purpose::Other, at(0)), Some(Cause::TwinOf(_))));
}

#[test]
fn news_are_small() {
    assert!(size_of::<News>() <= 64, "{}", size_of::<News>());
}
