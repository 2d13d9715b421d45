//! `init`: what it writes, and when it is refused.

mod floors;

use redlock_core::admission::AdmissionOp;

use super::*;

const PLAIN: InitOptions =
    InitOptions { again: false, floor: 0, far_floor: false, max_ttl: MAX_TTL, lower: false };
const AGAIN: InitOptions = InitOptions { again: true, ..PLAIN };

fn plan(masters: &[Master], options: InitOptions) -> Result<InitPlan, NoPlan> {
    plan_by(client(masters, 0), masters, options)
}

fn plan_by(
    mut client: Admission,
    masters: &[Master],
    options: InitOptions,
) -> Result<InitPlan, NoPlan> {
    client.plan_init(
        InitInputs {
            options,
            listed: &listed(masters),
            answers: &answers(masters),
            nonces: &nonces(masters),
            ours: &[],
        },
        0,
    )
}

fn answers(masters: &[Master]) -> Vec<Scored> {
    let up = masters.iter().enumerate().filter(|(_, master)| master.up);
    up.map(|(index, master)| master.scored(index, Incarnation::of(&master.facts(0)), 0)).collect()
}

fn nonces(masters: &[Master]) -> Vec<Nonce> {
    (0..masters.len() as u64).map(|index| Nonce(500 + index)).collect()
}

fn carry(masters: &mut [Master], plan: &InitPlan) -> Vec<Outcome> {
    let orders = plan.orders.iter();
    let carry = |data: &mut Data, order: &AdmissionOp| match order {
        AdmissionOp::Init(order) => data.init(EPOCH, order).outcome,
        AdmissionOp::Remove(order) => data.remove(EPOCH, order).outcome,
        order => panic!("{order:?}"),
    };
    orders.map(|(index, order)| carry(&mut masters[*index].data, order)).collect()
}

#[test]
fn init_admits_fresh_masters_and_a_second_call_writes_nothing() {
    for count in 1..=5 {
        let mut masters: Vec<_> = (1..=count).map(|index| Master::fresh(index * 10)).collect();
        let first = plan(&masters, PLAIN).unwrap();
        assert!(!first.refused);
        assert!(carry(&mut masters, &first).iter().all(|outcome| *outcome == Outcome::Done));
        let before = format!("{masters:?}");
        let second = plan(&masters, PLAIN).unwrap();
        carry(&mut masters, &second);
        assert_eq!(format!("{masters:?}"), before, "{count} masters");
    }
}

#[test]
fn init_writes_nothing_without_a_quorum() {
    for (count, up) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] {
        let mut masters: Vec<_> = (1..=count).map(|index| Master::fresh(index * 10)).collect();
        for master in masters.iter_mut().skip(up) {
            master.up = false;
        }
        assert_eq!(plan(&masters, PLAIN), Err(NoPlan::NoQuorum), "{up} of {count}");
    }
}

/// Two that lost their records appear new, and the record of the third one shows that they are not.
#[test]
fn unreadable_record_refuses_init_without_again() {
    let unread = |masters: &[Master], may_come| {
        let expected = NoPlan::Unread { masters: vec![2], may_come };
        assert_eq!(plan(masters, PLAIN), Err(expected));
        assert_eq!(plan(masters, AGAIN).map(|plan| plan.orders.len()), Ok(2));
    };
    let mut masters = vec![Master::fresh(10), Master::fresh(20), Master::admitted(30)];
    masters[2].up = false;
    unread(&masters, false);
    // It has been reading its data from disk for this long.
    for (uptime, may_come) in [(0, true), (LENGTH - 1, true), (LENGTH, false)] {
        (masters[2].role, masters[2].up) = (MasterKind::Loading { uptime }, true);
        unread(&masters, may_come);
    }
    // It was read some time ago, and is stopped now.
    (masters[2].role, masters[2].up) = (MasterKind::Master, true);
    let (mut client, answers) = (client(&masters, 0), answers(&masters));
    let planned = client.plan_init(
        InitInputs {
            options: PLAIN,
            listed: &listed(&masters),
            answers: &answers[..2],
            nonces: &nonces(&masters),
            ours: &[],
        },
        0,
    );
    assert_eq!(planned, Err(NoPlan::Unread { masters: vec![2], may_come: false }));
    assert!(plan(&masters, PLAIN).unwrap().refused);
}

/// Otherwise the answer is that too few masters answered, and waiting is the advice.
#[test]
fn duplicate_addresses_are_unread_even_without_a_quorum() {
    let mut masters = vec![Master::fresh(10), Master::fresh(20)];
    masters.extend([masters[1].clone(), masters[1].clone()]);
    let unread = NoPlan::Unread { masters: vec![2, 3], may_come: false };
    assert_eq!(plan(&masters, PLAIN), Err(unread));
}

#[test]
fn init_waits_for_first_connections_like_begin() {
    let mut masters = vec![Master::fresh(10)];
    masters[0].up = false;
    for is_connecting in [true, false] {
        let mut client = client(&masters, 0);
        client.set_connecting(is_connecting);
        let waits = Err(NoPlan::Unread { masters: vec![0], may_come: true });
        let expected = if is_connecting { waits } else { Err(NoPlan::NoQuorum) };
        assert_eq!(
            client.plan_init(
                InitInputs {
                    options: PLAIN,
                    listed: &listed(&masters),
                    answers: &[],
                    nonces: &nonces(&masters),
                    ours: &[]
                },
                0
            ),
            expected
        );
    }
}

#[test]
fn init_after_a_restart_is_refused_without_again() {
    let mut masters = vec![Master::admitted(10), Master::admitted(20), Master::admitted(30)];
    masters[0].restart(11);
    let refused = plan(&masters, PLAIN).unwrap();
    assert!(refused.refused);
    let before = masters.iter().map(|master| master.data.clone()).collect::<Vec<_>>();
    carry(&mut masters, &refused);
    assert_eq!(masters.iter().map(|master| master.data.clone()).collect::<Vec<_>>(), before);

    let again = plan(&masters, AGAIN).unwrap();
    carry(&mut masters, &again);
    assert!(masters[0].data.record.admits(identity(11)));
}

/// Records that this client has read outlive their loss on the masters. Records that it wrote
/// itself are not evidence of an earlier use.
#[test]
fn plain_init_is_refused_after_records_that_showed_use_are_lost() {
    let mut masters: Vec<_> = [10, 20, 30].map(Master::admitted).into();
    let mut client = client(&masters, 0);
    for (index, run) in [11, 21, 31].into_iter().enumerate() {
        masters[index].restart(run);
        reconnect(&mut client, &masters, index, 1);
    }
    let answers = answers(&masters);
    let mut refused = |options, ours: &[Nonce]| {
        client
            .plan_init(
                InitInputs {
                    options,
                    listed: &listed(&masters),
                    answers: &answers,
                    nonces: &nonces(&masters),
                    ours,
                },
                1,
            )
            .unwrap()
            .refused
    };
    assert!(refused(PLAIN, &[]));
    assert!(!refused(AGAIN, &[]));
    assert!(!refused(PLAIN, &[10, 20, 30].map(Nonce)), "its own scripts have admitted them");
}

#[test]
fn a_late_init_finds_another_record_and_does_nothing() {
    let mut masters: Vec<_> = [10, 20, 30].map(Master::fresh).into();
    let (first, late) = (plan(&masters, PLAIN).unwrap(), plan(&masters, PLAIN).unwrap());
    carry(&mut masters, &first);
    assert_eq!(carry(&mut masters, &late), [Outcome::Moved; 3]);
}

#[test]
fn init_lowers_max_ttl_only_on_request() {
    let mut masters = vec![Master::admitted(10), Master::admitted(20), Master::admitted(30)];
    for (max_ttl, lower, expected) in [(5000, false, 5000), (100, false, 5000), (100, true, 100)] {
        let options = InitOptions { max_ttl, lower, again: lower, ..PLAIN };
        let order = plan(&masters, options).unwrap();
        carry(&mut masters, &order);
        let held: Vec<_> = masters.iter().map(|master| master.data.record.max_ttl).collect();
        assert_eq!(held, [Some(expected); 3]);
    }
}

#[test]
fn only_again_takes_over_ballots_of_clients_without_quarantine() {
    let mut masters = [10, 20, 30].map(Master::fresh).to_vec();
    let far = Some(Ballots::new(7, SCORE_END / 2 + 31));
    (masters[1].data.off, masters[2].data.off) = (far, off_set());
    let refused = plan(&masters, PLAIN).unwrap();
    assert_eq!((refused.refused, refused.orders, refused.floor), (true, vec![], None));

    let again = plan(&masters, AGAIN).unwrap();
    assert!(carry(&mut masters, &again).iter().all(|outcome| *outcome == Outcome::Done));
    for master in &masters {
        assert_eq!(master.data.off, None);
        assert!(master.data.record.admits(master.identity));
        assert_eq!(master.data.highest(master.identity), SCORE_END / 2 + 31);
    }
}

#[test]
fn all_masters_get_the_largest_max_ttl_of_any_record() {
    let mut masters = vec![Master::admitted(10), Master::fresh(20), Master::fresh(30)];
    masters[0].data.record.max_ttl = Some(5000);
    let order = plan(&masters, AGAIN).unwrap();
    carry(&mut masters, &order);
    let held: Vec<_> = masters.iter().map(|master| master.data.record.max_ttl).collect();
    assert_eq!(held, [Some(5000); 3]);
}

#[test]
fn init_skips_duplicate_addresses() {
    let mut masters = [10, 20, 30].map(Master::fresh).to_vec();
    masters[2] = masters[1].clone();
    let orders = plan(&masters, AGAIN).unwrap().orders;
    let written: Vec<_> = orders.iter().map(|(master, _)| *master).collect();
    assert_eq!(written, [0, 1]);
}

#[test]
fn refused_init_names_masters_used_without_quarantine() {
    let mut masters = [10, 20, 30].map(Master::fresh).to_vec();
    masters[1].data.off = off_set();
    let mut client = client(&masters, 0);
    assert!(
        client
            .plan_init(
                InitInputs {
                    options: PLAIN,
                    listed: &listed(&masters),
                    answers: &answers(&masters),
                    nonces: &nonces(&masters),
                    ours: &[]
                },
                0
            )
            .unwrap()
            .refused
    );
    let is_said = |master| {
        let Some(Why::NotAdmitted(said)) = client.why(master, 0) else { panic!("it votes") };
        said.why == redlock_core::WhyNot::UsedWithoutQuarantine
    };
    assert_eq!([0, 1, 2].map(is_said), [false, true, false]);
}
