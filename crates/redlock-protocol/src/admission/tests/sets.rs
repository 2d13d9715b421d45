//! Sets of masters next to the list of a client: which masters get requests for new locks.

mod init;

use redlock_core::ListDoubt;
use redlock_core::admission::{AdmissionOp, RecordedSet};

use super::*;

const PLAIN: InitOptions =
    InitOptions { again: false, floor: 0, far_floor: false, max_ttl: MAX_TTL, lower: false };
const AGAIN: InitOptions = InitOptions { again: true, ..PLAIN };

/// A set with this id, of masters that are named `m0`, `m1` and so on.
fn set(id: u64, size: u8) -> RecordedSet {
    let names = Names::new((0..size).map(|place| format!("m{place}")));
    RecordedSet { id: SetId(id), size, names }
}

/// Admitted masters with these sets, as id and number.
fn masters(sets: &[Option<(u64, u8)>]) -> Vec<Master> {
    let master = |(place, found): (usize, &Option<(u64, u8)>)| {
        let mut master = Master::admitted(10 * (place as u64 + 1));
        master.data.record.set = found.map(|(id, size)| set(id, size));
        master
    };
    sets.iter().enumerate().map(master).collect()
}

fn misfits(admission: &Admission, count: usize) -> Vec<Option<Misfit>> {
    (0..count).map(|master| admission.misfit(master)).collect()
}

/// The doubt of a client that lists `m0`, `m1` and so on.
fn doubt(admission: &Admission) -> Option<ListDoubt> {
    let names = set(0, admission.peers.len() as u8).names;
    admission.list_doubt(&names).map(|(_, doubt)| doubt)
}

/// The rules, word by word: the judgement of each master, and whether to warn.
fn expected(sets: &[Option<(u64, u8)>]) -> (Vec<Option<Misfit>>, bool) {
    let length = sets.len() as u8;
    let with: Vec<_> = sets.iter().flatten().collect();
    let have = |id: u64| with.iter().filter(|(other, _)| *other == id).count();
    let most = with.iter().map(|(id, _)| have(*id)).max().unwrap_or(0);
    let differ = with.len() - most;
    let judge = |found: &Option<(u64, u8)>| match found {
        Some((_, size)) if size.abs_diff(length) >= 2 => Some(Misfit::Size),
        _ if differ >= 2 => Some(Misfit::Split),
        _ => None,
    };
    let is_near = with.iter().any(|(_, size)| size.abs_diff(length) == 1);
    (sets.iter().map(judge).collect(), differ == 1 || is_near)
}

/// Lists of one to five masters. Each has no set, or one of three, of this number or another.
#[test]
fn every_combination_of_sets_is_judged_by_the_rules() {
    for length in 1..=5_u8 {
        let mut kinds = vec![None, Some((1, length)), Some((2, length)), Some((3, length + 1))];
        kinds.extend([Some((1, length + 1)), Some((2, length + 2))]);
        let combinations = kinds.len().pow(length.into());
        for code in 0..combinations {
            let kind = |place: u32| kinds[code / kinds.len().pow(place) % kinds.len()];
            let sets: Vec<_> = (0..length.into()).map(kind).collect();
            let client = client(&masters(&sets), 0);
            let (wanted, warns) = expected(&sets);
            assert_eq!(misfits(&client, length.into()), wanted, "{sets:?}");
            assert_eq!(doubt(&client).is_some(), warns, "{sets:?}");
            // They have lost nothing.
            assert!((0..length.into()).all(|master| client.votes(master)), "{sets:?}");
        }
    }
}

#[test]
fn list_shorter_than_its_set_by_two_or_more_is_refused() {
    for (length, refused) in [(1, true), (2, true), (3, true), (4, false), (5, false)] {
        let client = client(&masters(&vec![Some((1, 5)); length]), 0);
        let all = misfits(&client, length);
        let wanted = if refused { Some(Misfit::Size) } else { None };
        assert!(all.iter().all(|misfit| *misfit == wanted), "{length}: {all:?}");
        assert_eq!(doubt(&client).is_some(), length == 4, "{length}");
    }
}

#[test]
fn one_stranger_is_a_warning_and_two_are_refused() {
    let one = client(
        &masters(&[Some((1, 5)), Some((1, 5)), Some((1, 5)), Some((1, 5)), Some((2, 5))]),
        0,
    );
    assert!(misfits(&one, 5).iter().all(Option::is_none) && doubt(&one).is_some());
    let two = client(
        &masters(&[Some((1, 5)), Some((1, 5)), Some((1, 5)), Some((2, 5)), Some((2, 5))]),
        0,
    );
    assert_eq!(misfits(&two, 5), [Some(Misfit::Split); 5]);
    let fresh = client(&masters(&[Some((1, 3)), Some((1, 3)), None]), 0);
    assert!(misfits(&fresh, 3).iter().all(Option::is_none) && doubt(&fresh).is_none());
}

/// Otherwise a mixed list would be accepted as soon as the masters of one set are away.
#[test]
fn sets_of_unreachable_masters_are_still_compared() {
    let masters = masters(&[Some((1, 5)), Some((1, 5)), Some((2, 5)), Some((2, 5)), Some((2, 5))]);
    let mut client = client(&masters, 0);
    client.on(0, Event::Down, 1);
    client.on(1, Event::Down, 1);
    assert_eq!(client.misfit(2), Some(Misfit::Split));
    let mut empty = masters[0].clone();
    empty.restart(99);
    client.on(0, Event::Up(empty.facts(2)), 2);
    assert_eq!(client.misfit(2), None, "it has lost its record, and one is left outside");
}

#[test]
fn second_addresses_belong_to_no_set() {
    let mut masters = masters(&[Some((1, 3)), Some((2, 3)), Some((2, 3))]);
    masters[2].identity = masters[1].identity;
    masters[2].data = masters[1].data.clone();
    let client = client(&masters, 0);
    assert_eq!((client.set_of(2), client.misfit(0)), (None, None));
    assert!(doubt(&client).is_some());
}

#[test]
fn clients_without_quarantine_have_no_sets() {
    let masters = masters(&[Some((1, 5))]);
    let admission = Admission::new(1, MAX_TTL, 1000, ACT_WITHIN).without_quarantine();
    let client = connected(admission, &masters, 0);
    assert_eq!((client.misfit(0), client.common_set()), (None, None));
}

#[test]
fn refused_masters_are_probed_each_second_until_their_set_fits() {
    let mut masters = masters(&[Some((1, 5)), Some((1, 5)), Some((1, 5))]);
    let mut client = client(&masters, 0);
    assert_eq!(client.step(0, 999, Nonce(1)), Step::Wait(1000));
    let names = settle(&mut client, &mut masters, 1000);
    assert_eq!(names, ["probe"; 3], "nothing else is sent, although they vote");
    for master in &mut masters {
        master.data.record.set = Some(set(2, 3));
    }
    assert_eq!(settle(&mut client, &mut masters, 2000), ["probe"; 3]);
    assert_eq!(misfits(&client, 3), [None; 3]);
    assert_eq!(settle(&mut client, &mut masters, 9000), [""; 0]);
}

/// The set names `m0` to `m4`, and the last master of the list shows no set.
#[test]
fn unnamed_master_without_a_set_is_doubted_if_others_are_named() {
    let of = |names: &[&str]| Names::new(names.to_vec());
    let former = of(&["m0", "m1", "m2", "m3", "x"]);
    let five = Some((1, 5));
    let mut masters = masters(&[five, five, five, five, None]);
    let unnamed = Some((4, ListDoubt::Names));
    let stranger = client(&masters, 0);
    assert_eq!(stranger.list_doubt(&former), unnamed);
    assert_eq!(misfits(&stranger, 5), [None; 5], "names refuse nothing");
    assert_eq!(stranger.list_doubt(&set(1, 5).names), None, "it has restarted");
    assert_eq!(stranger.list_doubt(&of(&["v", "w", "x", "y", "z"])), None, "another spelling");
    masters[4].up = false;
    let mut dead = client(&masters, 0);
    assert_eq!(dead.list_doubt(&former), unnamed);
    dead.set_connecting(true);
    assert_eq!(dead.list_doubt(&former), None, "it may show its set soon");
    masters[4] = masters[3].clone();
    (masters[4].identity, masters[4].up) = (identity(99), true);
    let shown = client(&masters, 0);
    assert_eq!(shown.list_doubt(&former), None, "its record names the set");
}

/// Strangers get the set of the others when they are admitted, so their records prove nothing.
#[test]
fn several_names_missing_from_a_set_are_doubted_and_need_again() {
    let five = masters(&[Some((1, 5)); 5]);
    let client = client(&five, 0);
    let of = |names: [&str; 5]| Names::new(names);
    let wrong = of(["m0", "m1", "v", "w", "x"]);
    assert_eq!(client.list_doubt(&wrong), Some((2, ListDoubt::Names)));
    assert_eq!(misfits(&client, 5), [None; 5], "names refuse nothing");
    let replaced = of(["m0", "m1", "m2", "m3", "x"]);
    assert_eq!(client.list_doubt(&replaced), None, "one changes at a time");
    assert_eq!(client.list_doubt(&of(["v", "w", "x", "y", "z"])), None, "another spelling");
    let needs_again = |names| {
        let listed = Listed { names, fresh: SetId(9) };
        matches!(plan_for(&five, PLAIN, &listed), Err(NoPlan::OtherSet(_)))
    };
    assert!(needs_again(wrong));
    assert!(!needs_again(replaced));
}

#[test]
fn duplicate_addresses_are_not_part_of_the_list() {
    let mut masters = masters(&[Some((1, 3)), Some((1, 3)), Some((1, 3)), None, None]);
    for (copy, of) in [(3, 0), (4, 1)] {
        masters[copy] = masters[of].clone();
    }
    let client = client(&masters, 0);
    assert_eq!((misfits(&client, 5), doubt(&client)), (vec![None; 5], None));
    let names = set(0, 5).names;
    let lists = client.lists(client.set_of(0), &names);
    assert_eq!((lists.list, lists.duplicates), (set(0, 3).names, Names::new(["m3", "m4"])));
    assert!(!lists.needs_again);
    let written = plan_for(&masters, AGAIN, &Listed { names, fresh: SetId(9) }).unwrap().set;
    assert_eq!(written, Some(set(1, 3)), "its id is kept");
}

/// Requests wait for the addresses that may be duplicates, and are refused if they are not.
#[test]
fn connecting_addresses_may_be_duplicates() {
    for (listed, connected) in (5..=8).flat_map(|listed| (0..=listed).map(move |up| (listed, up))) {
        let mut masters = masters(&vec![Some((1, 5)); listed]);
        masters.iter_mut().skip(connected).for_each(|master| master.up = false);
        let mut client = client(&masters, 0);
        let is_near = |client: &Admission| doubt(client) == Some(ListDoubt::Size);
        let state = |client: &Admission| (client.awaits_duplicates(), is_near(client));
        let is_known = connected > 0;
        let doubt = is_known && listed == 6;
        assert_eq!(state(&client), (false, doubt), "{listed} {connected}");
        client.set_connecting(true);
        let waits = is_known && listed > 6 && connected <= 6;
        let is_sure = doubt && connected == 6;
        assert_eq!(state(&client), (waits, is_sure), "{listed} {connected}");
        let misfits = misfits(&client, listed);
        let is_refused = misfits.iter().take(connected).all(|one| *one == Some(Misfit::Size));
        assert_eq!(is_refused && is_known, is_known && listed > 6, "{listed} {connected}");
    }
}

/// The address that is connected first votes, and the one that is listed first has the name.
#[test]
fn servers_are_named_by_their_first_listed_address() {
    let masters = masters(&[Some((1, 2)), Some((1, 2))]);
    let mut client = Admission::new(3, MAX_TTL, 1000, ACT_WITHIN);
    for (address, of) in [(2, 0), (1, 1), (0, 0)] {
        client.on(address, Event::Up(masters[of].facts(0)), 0);
    }
    assert!(client.votes(2) && !client.votes(0));
    let lists = client.lists(client.set_of(2), &set(0, 3).names);
    assert_eq!((lists.list, lists.duplicates), (set(0, 2).names, Names::new(["m2"])));
    assert_eq!(misfits(&client, 3), [None; 3]);
}

/// The same rule decides for `init` and for the advice.
#[test]
fn lists_say_whether_init_needs_again() {
    for (length, needs) in [(3, true), (4, false), (5, false), (6, false), (7, true)] {
        let masters = masters(&vec![Some((1, 5)); length]);
        let client = client(&masters, 0);
        let lists = client.lists(client.set_of(0), &set(0, length as u8).names);
        assert_eq!(lists.needs_again, needs, "{length}");
        assert_eq!(matches!(plan(&masters, PLAIN), Err(NoPlan::OtherSet(_))), needs, "{length}");
    }
}

/// The events of a client while an `init` writes one master after the other.
#[test]
fn running_clients_learn_of_a_new_set_in_any_order_of_answers() {
    let before = masters(&[Some((1, 4)), Some((1, 4)), Some((1, 4)), Some((1, 4)), None]);
    for code in 0..5_usize.pow(5) {
        let order: Vec<usize> = (0..5).map(|place| code / 5_usize.pow(place) % 5).collect();
        let mut client = client(&before, 0);
        assert!(doubt(&client).is_some(), "five are listed, and the set has four");
        let incarnations: Vec<_> = (0..5).map(|one| client.incarnation(one)).collect();
        let mut new = before.clone();
        for (read, &master) in order.iter().enumerate() {
            new[master].data.record.set = Some(set(2, 5));
            client.on(master, Event::Read(new[master].facts(1)), 1 + read as u64);
            // A held lease is not ended by it.
            for (one, incarnation) in incarnations.iter().enumerate() {
                assert!(client.votes(one), "{order:?}");
                assert_eq!(client.incarnation(one), *incarnation, "{order:?}");
            }
        }
        let all: std::collections::BTreeSet<_> = order.iter().collect();
        if all.len() == 5 {
            assert!(misfits(&client, 5).iter().all(Option::is_none) && doubt(&client).is_none());
        }
    }
}

/// The set that a master gets when its quarantine is over, by what the two others have.
#[test]
fn admitted_masters_get_the_common_set_of_voting_masters() {
    for (others, wanted) in [
        ([Some((1, 3)), Some((1, 3))], Some(1)),
        ([Some((1, 3)), Some((2, 3))], None),
        ([Some((1, 3)), None], None),
        ([None, None], None),
    ] {
        let mut masters = masters(&[None, others[0], others[1]]);
        masters[0].restart(99);
        let mut client = client(&masters, 0);
        for now in (0..=2 * LENGTH).step_by(100) {
            settle(&mut client, &mut masters, now);
        }
        assert!(client.votes(0), "{others:?}");
        let found = masters[0].data.record.set.as_ref().map(|set| set.id.0);
        assert_eq!(found, wanted, "{others:?}");
    }
}

/// Masters that it admits could outvote the set that refuses it.
#[test]
fn no_admission_while_voting_masters_have_another_set_size() {
    let masters_of = |sets: &[(u64, u8)], length: u64| {
        let mut masters = masters(&sets.iter().map(|set| Some(*set)).collect::<Vec<_>>());
        let others = masters.len() as u64..length;
        masters.extend(others.map(|place| Master::fresh(10 * (place + 1))));
        masters
    };
    let three = (1, 3);
    for (sets, length, admits) in [
        (vec![(1, 1)], 3, false),
        (vec![three; 3], 5, false),
        (vec![(1, 5)], 3, false),
        (vec![(1, 2); 2], 3, true),
        (vec![(9, 1), three], 3, true),
        (vec![], 3, true),
    ] {
        let mut masters = masters_of(&sets, length);
        let mut client = client(&masters, 0);
        for now in (0..=2 * LENGTH).step_by(100) {
            settle(&mut client, &mut masters, now);
        }
        let last = length as usize - 1;
        assert_eq!(client.votes(last), admits, "{sets:?}");
        if !admits {
            assert_eq!(masters[last].data.record, Record::default(), "{sets:?}");
            let why = not_admitted(&client, last, 2 * LENGTH);
            assert_eq!((why.votes_again, why.by_visits), (None, None), "{sets:?}");
        }
    }
}

#[test]
fn set_in_a_kept_record_survives_a_quarantine() {
    let mut masters = masters(&[Some((1, 3)), None, None]);
    masters[0].identity = identity(99);
    let mut client = client(&masters, 0);
    for now in (0..=2 * LENGTH).step_by(100) {
        settle(&mut client, &mut masters, now);
        assert_eq!(masters[0].data.record.set, Some(set(1, 3)), "at {now}");
    }
    assert!(client.votes(0));
}

fn plan(masters: &[Master], options: InitOptions) -> Result<InitPlan, NoPlan> {
    plan_for(masters, options, &listed(masters))
}

fn plan_for(masters: &[Master], options: InitOptions, listed: &Listed) -> Result<InitPlan, NoPlan> {
    let up = masters.iter().enumerate().filter(|(_, master)| master.up);
    let scored = |(index, master): (usize, &Master)| {
        master.scored(index, Incarnation::of(&master.facts(0)), 0)
    };
    let answers: Vec<_> = up.map(scored).collect();
    let nonces = vec![Nonce(500); masters.len()];
    client(masters, 0)
        .plan_init(InitInputs { options, listed, answers: &answers, nonces: &nonces, ours: &[] }, 0)
}
