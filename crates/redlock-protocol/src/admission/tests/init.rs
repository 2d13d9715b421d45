//! `init`: what it writes, and when it is refused.

use redlock_core::admission::AdmissionOp;

use super::*;

const PLAIN: InitOptions =
    InitOptions { again: false, floor: 0, far_floor: false, max_ttl: MAX_TTL, lower: false };
const AGAIN: InitOptions = InitOptions { again: true, ..PLAIN };

fn plan(masters: &[Master], options: InitOptions) -> Result<InitPlan, NoPlan> {
    plan_by(client(masters, 0), masters, options)
}

/// The plan of a client without quarantine.
fn plan_off(masters: &[Master]) -> InitPlan {
    let client = client(masters, 0).without_quarantine();
    plan_by(client, masters, AGAIN).unwrap()
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
fn with_fewer_than_a_quorum_nothing_is_written() {
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
fn init_is_refused_while_it_cannot_read_a_record_unless_again_is_said() {
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

#[test]
fn init_waits_for_a_connection_that_is_being_made_as_begin_does() {
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
fn init_after_a_restart_is_refused_unless_again_is_said() {
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
fn a_plain_init_is_refused_where_the_use_was_read_before_all_records_were_lost() {
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
fn members_are_levelled_when_all_masters_answer_and_never_lowered() {
    for away in [0, 1] {
        let mut masters = vec![Master::admitted(10), Master::admitted(20), Master::admitted(30)];
        assert!(masters[0].data.accept(identity(10), member(), 4095));
        masters[2].up = away == 0;
        let order = plan(&masters, AGAIN).unwrap();
        assert!(masters[0].data.accept(identity(10), member(), 8191));
        carry(&mut masters, &order);
        let highest = [0, 1].map(|index| masters[index].data.highest(masters[index].identity));
        assert_eq!(highest, [8191, if away == 0 { 4095 } else { 31 }]);
    }
}

#[test]
fn init_raises_max_ttl_and_lowers_it_only_when_that_is_said() {
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
fn a_floor_that_a_person_gives_joins_the_maximum() {
    let mut masters: Vec<_> = [10, 20, 30].map(Master::fresh).into();
    let high = (1 << 50) + 1;
    let order = plan(&masters, InitOptions { floor: high, far_floor: true, ..PLAIN }).unwrap();
    carry(&mut masters, &order);
    assert_eq!(masters[0].data.record.floor, Some(high | 31));
}

/// A master whose clock is wrong does not move the limit.
#[test]
fn a_floor_that_leaves_few_tokens_is_refused_with_the_limit() {
    let mut masters: Vec<_> = [10, 20, 30].map(Master::fresh).into();
    masters[2].ahead = 9_000 * LENGTH;
    let limit = EPOCH * 1_000 + (1 << 51);
    let planned = |floor| plan(&masters, InitOptions { floor, far_floor: true, ..PLAIN });
    assert_eq!(planned(limit).unwrap().floor, Some(limit | 31));
    for floor in [limit + 1, SCORE_END - 1, SCORE_END] {
        assert_eq!(planned(floor), Err(NoPlan::TooFar(limit)));
    }
}

/// If all masters come back empty, only the operator knows the earlier tokens.
#[test]
fn a_floor_that_clocks_do_not_pass_soon_is_refused_unless_that_is_said() {
    let mut masters: Vec<_> = [10, 20, 30].map(Master::fresh).into();
    masters[2].ahead = 9_000 * LENGTH;
    let limit = EPOCH * 1_000 + 60_000_000;
    for (floor, is_near) in [(limit, true), (limit + 1, false)] {
        for far_floor in [false, true] {
            let planned = plan(&masters, InitOptions { floor, far_floor, ..PLAIN });
            let expected = if is_near || far_floor { None } else { Some(NoPlan::FarAhead(limit)) };
            assert_eq!(planned.err(), expected, "{floor} {far_floor}");
        }
    }
}

/// Only masters themselves can show such a score.
#[test]
fn a_floor_that_would_reach_2_to_the_53_is_refused() {
    let mut masters = vec![Master::fresh(10)];
    masters[0].ahead = SCORE_END / 1_000;
    assert_eq!(plan(&masters, PLAIN), Err(NoPlan::TooLarge));
}

#[test]
fn init_writes_nothing_where_clients_without_quarantine_were_and_again_takes_their_ballots_over() {
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
fn init_without_quarantine_removes_records_and_keeps_the_largest_ballot() {
    let mut masters = vec![Master::admitted(10), Master::admitted(20), Master::fresh(30)];
    masters[0].data.accept(identity(10), member(), SCORE_END / 2 + 31);
    let planned = plan_off(&masters);
    assert!(!planned.refused);
    assert_eq!(planned.floor, Some(SCORE_END / 2 + 31));
    assert!(carry(&mut masters, &planned).iter().all(|outcome| *outcome == Outcome::Done));
    let off = Some(Ballots::new(MEMBERS, SCORE_END / 2 + 31));
    for master in &masters {
        assert_eq!(master.data, Data { off: off.clone(), ..Data::default() });
    }
}

/// A ballot may be accepted between the reading and the script.
#[test]
fn ballots_accepted_in_between_survive_either_conversion() {
    let mut masters = vec![Master::admitted(10)];
    let planned = plan_off(&masters);
    masters[0].data.accept(identity(10), member(), SCORE_END - 1);
    carry(&mut masters, &planned);
    assert_eq!(masters[0].data.off.as_ref().map(Ballots::highest), Some(SCORE_END - 1));

    masters[0].data.off = off_set();
    let planned = plan(&masters, AGAIN).unwrap();
    masters[0].data.off = Some(Ballots::new(MEMBERS, SCORE_END - 1));
    carry(&mut masters, &planned);
    assert_eq!(masters[0].data.highest(identity(10)), SCORE_END - 1);
}

#[test]
fn all_masters_get_the_largest_max_ttl_that_one_of_them_holds() {
    let mut masters = vec![Master::admitted(10), Master::fresh(20), Master::fresh(30)];
    masters[0].data.record.max_ttl = Some(5000);
    let order = plan(&masters, AGAIN).unwrap();
    carry(&mut masters, &order);
    let held: Vec<_> = masters.iter().map(|master| master.data.record.max_ttl).collect();
    assert_eq!(held, [Some(5000); 3]);
}

#[test]
fn nothing_is_written_over_another_address_of_a_master() {
    let mut masters = [10, 20, 30].map(Master::fresh).to_vec();
    masters[2] = masters[1].clone();
    let orders = plan(&masters, AGAIN).unwrap().orders;
    let written: Vec<_> = orders.iter().map(|(master, _)| *master).collect();
    assert_eq!(written, [0, 1]);
}

#[test]
fn members_are_not_levelled_by_a_score_that_another_life_may_have_left() {
    for is_proven in [true, false] {
        let mut masters = vec![Master::admitted(10), Master::admitted(20), Master::admitted(30)];
        assert!(masters[0].data.accept(identity(10), member(), 4095));
        let mut answers = answers(&masters);
        if !is_proven {
            answers[0].facts.record.nonce = Some(Nonce(99));
        }
        let plan = client(&masters, 0)
            .plan_init(
                InitInputs {
                    options: PLAIN,
                    listed: &listed(&masters),
                    answers: &answers,
                    nonces: &nonces(&masters),
                    ours: &[],
                },
                0,
            )
            .unwrap();
        let (_, AdmissionOp::Init(order)) = &plan.orders[1] else { panic!("{plan:?}") };
        assert_eq!(order.level, if is_proven { 4095 } else { 31 });
    }
}

/// A client has begun a quarantine of one master between the reading and the scripts.
#[test]
fn the_floor_that_a_call_has_written_itself_refuses_nothing_and_that_of_another_does() {
    let mut masters = [10, 20, 30].map(Master::fresh).to_vec();
    let first = plan(&masters, PLAIN).unwrap();
    let two = InitPlan { orders: first.orders[..2].to_vec(), ..first };
    assert_eq!(carry(&mut masters, &two), [Outcome::Done; 2]);
    let again = |ours: &[Nonce]| {
        let fresh: Vec<Nonce> = [600, 601, 602].map(Nonce).to_vec();
        client(&masters, 0)
            .plan_init(
                InitInputs {
                    options: PLAIN,
                    listed: &listed(&masters),
                    answers: &answers(&masters),
                    nonces: &fresh,
                    ours,
                },
                0,
            )
            .unwrap()
    };
    assert!(!again(&nonces(&masters)).refused, "it goes on with the third");
    assert!(again(&[]).refused, "another call was here");
    assert!(again(&nonces(&masters)[..1]).refused, "so it was at the second");
}

#[test]
fn a_refused_init_says_where_clients_without_quarantine_were() {
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
