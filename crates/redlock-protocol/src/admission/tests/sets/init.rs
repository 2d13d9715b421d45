//! The sets that `init` writes, and the lists for which it is refused.

use super::*;

fn carry(masters: &mut [Master], plan: &InitPlan) {
    for (index, order) in &plan.orders {
        let AdmissionOp::Init(order) = order else { panic!("{order:?}") };
        assert_eq!(masters[*index].data.init(EPOCH, order).outcome, Outcome::Done);
    }
}

fn ids(masters: &[Master]) -> Vec<Option<u64>> {
    masters.iter().map(|master| master.data.record.set.as_ref().map(|set| set.id.0)).collect()
}

#[test]
fn init_writes_one_set_on_every_master_and_keeps_its_id() {
    for count in 1..=5 {
        let mut masters: Vec<_> = (1..=count).map(|index| Master::fresh(index * 10)).collect();
        for _ in 0..2 {
            let plan = plan(&masters, PLAIN).unwrap();
            carry(&mut masters, &plan);
            let wanted = RecordedSet { id: SetId(0xf0), ..set(0, count as u8) };
            assert!(masters.iter().all(|master| master.data.record.set == Some(wanted.clone())));
        }
    }
}

#[test]
fn init_draws_another_id_for_another_list() {
    let of = |names: &[&str]| Listed { names: Names::new(names.to_vec()), fresh: SetId(0xf0) };
    let three = masters(&[Some((1, 3)); 3]);
    for (names, id) in [
        (["m0", "m1", "m2"], 1),
        (["m2", "m0", "m1"], 1),
        (["m0", "m1", "x"], 0xf0),
        (["x", "y", "z"], 0xf0),
    ] {
        let plan = plan_for(&three, PLAIN, &of(&names)).unwrap();
        assert_eq!(plan.set.unwrap().id, SetId(id), "{names:?}");
    }
    let removed = masters(&[Some((1, 4)); 3]);
    assert_eq!(plan(&removed, PLAIN).unwrap().set.unwrap().id, SetId(0xf0));
}

/// It needs `again`, because such a list is more likely a wrong one.
#[test]
fn init_is_refused_for_a_list_differing_by_two_masters() {
    let refused = |sets: &[Option<(u64, u8)>], names: &[&str]| {
        let listed = Listed { names: Names::new(names.to_vec()), fresh: SetId(0xf0) };
        let masters = masters(sets);
        assert!(plan_for(&masters, AGAIN, &listed).unwrap().set.is_some());
        matches!(plan_for(&masters, PLAIN, &listed), Err(NoPlan::OtherSet(_)))
    };
    let five = Some((1, 5));
    assert!(refused(&[five; 3], &["m0", "m1", "m2"]), "two fewer");
    assert!(!refused(&[five; 4], &["m0", "m1", "m2", "m3"]), "one fewer");
    assert!(!refused(&[five, five, five, five, None], &["m0", "m1", "m2", "m3", "x"]));
    assert!(refused(&[five, five, five, None, None], &["m0", "m1", "m2", "x", "y"]));
    assert!(!refused(&[five; 5], &["a", "b", "c", "d", "e"]), "spelled differently");
    assert!(!refused(&[None, None, five, five, five], &["m0", "m1", "m2", "m3", "m4"]), "lost");
    assert!(refused(&[Some((1, 3)), None, None], &["m0", "x", "y"]), "one master is shared");
    let mut stranger = masters(&[Some((1, 3)), Some((1, 3)), Some((2, 3))]);
    let names = Names::new(["m2", "u", "v"]);
    stranger[2].data.record.set = Some(RecordedSet { names, ..set(2, 3) });
    assert!(
        matches!(plan(&stranger, PLAIN), Err(NoPlan::OtherSet(found)) if found.set == stranger[2].data.record.set)
    );
}

/// An `init` was stopped in the middle, or two of them with one list run at the same time.
#[test]
fn init_completes_an_interrupted_init_with_the_same_list() {
    let mut masters = masters(&[Some((9, 5)), Some((7, 5)), Some((1, 4)), Some((1, 4)), None]);
    let plan = plan(&masters, PLAIN).unwrap();
    carry(&mut masters, &plan);
    assert_eq!(ids(&masters), [Some(7); 5], "both take the smaller one");
}

#[test]
fn init_writes_no_set_unless_every_master_has_answered() {
    for sets in [[None; 3], [Some((1, 4)); 3]] {
        let mut masters = masters(&sets);
        masters[2].up = false;
        let plan = plan(&masters, AGAIN).unwrap();
        assert_eq!((plan.set.clone(), &plan.unanswered[..]), (None, &[2][..]));
        let before = ids(&masters);
        carry(&mut masters, &plan);
        assert_eq!(ids(&masters), before);
    }
    let mut replica = masters(&[None; 3]);
    replica[2].role = MasterKind::Replica;
    assert_eq!(plan(&replica, AGAIN).unwrap().set, None);
}

#[test]
fn refused_init_writes_no_set() {
    let mut masters = masters(&[Some((1, 4)), Some((1, 4)), Some((1, 4)), Some((1, 4)), None]);
    masters[4].restart(99);
    let plan = plan(&masters, PLAIN).unwrap();
    assert!(plan.refused && plan.set.is_none());
    carry(&mut masters, &plan);
    assert_eq!(ids(&masters), [Some(1), Some(1), Some(1), Some(1), None]);
}

/// The person has agreed to what was read.
#[test]
fn init_does_not_overwrite_a_set_changed_since_it_was_read() {
    let mut masters = masters(&[Some((1, 3)); 3]);
    let plan = plan_for(&masters, AGAIN, &Listed { names: Names::new(["x"; 3]), fresh: SetId(3) });
    masters[0].data.record.set = Some(set(2, 3));
    let (_, AdmissionOp::Init(order)) = &plan.unwrap().orders[0] else { panic!("an init") };
    assert_eq!(masters[0].data.init(EPOCH, order).outcome, Outcome::Moved);
    assert_eq!(masters[0].data.record.set, Some(set(2, 3)));
}
