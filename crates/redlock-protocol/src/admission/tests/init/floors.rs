//! The floor that `init` writes, the level of each member, and ballots of earlier clients.

use super::*;

/// The plan of a client without quarantine.
fn plan_off(masters: &[Master]) -> InitPlan {
    let client = client(masters, 0).without_quarantine();
    plan_by(client, masters, AGAIN).unwrap()
}

#[test]
fn scores_are_raised_if_all_masters_answer_and_never_lowered() {
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
fn floor_of_an_operator_is_included_in_the_maximum() {
    let mut masters: Vec<_> = [10, 20, 30].map(Master::fresh).into();
    let high = (1 << 50) + 1;
    let order = plan(&masters, InitOptions { floor: high, far_floor: true, ..PLAIN }).unwrap();
    carry(&mut masters, &order);
    assert_eq!(masters[0].data.record.floor, Some(high | 31));
}

/// A master whose clock is wrong does not move the limit.
#[test]
fn floor_that_leaves_few_tokens_is_refused_with_the_limit() {
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
fn floor_far_ahead_of_the_clocks_is_refused_without_far_floor() {
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
fn floor_of_2_to_the_53_or_more_is_refused() {
    let mut masters = vec![Master::fresh(10)];
    masters[0].ahead = SCORE_END / 1_000;
    assert_eq!(plan(&masters, PLAIN), Err(NoPlan::TooLarge));
}

#[test]
fn init_without_quarantine_keeps_only_the_largest_ballot() {
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
fn score_of_another_incarnation_does_not_raise_others() {
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
fn init_is_refused_by_floors_of_other_calls_and_not_its_own() {
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
    assert!(!again(&nonces(&masters)).refused, "it continues with the third");
    assert!(again(&[]).refused, "another call was here");
    assert!(again(&nonces(&masters)[..1]).refused, "it is also refused after the second call");
}
