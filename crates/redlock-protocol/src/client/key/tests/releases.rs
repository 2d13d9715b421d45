//! The end of a lease: whether its release is plain, and who gets the key next.

use super::*;

#[test]
fn short_lease_without_known_waiters_is_released_plainly() {
    let mut process = Process::new(true);
    let (first, _) = process.ask(None);
    let lease = process.win(first);
    assert_eq!(process.end(lease, true).1, "Release");
}

#[test]
fn a_long_lease_queries_the_meeting_point() {
    let mut process = Process::new(true);
    let (first, _) = process.ask(None);
    let lease = process.win(first);
    process.now += 20;
    assert_eq!(process.end(lease, true).1, "Release, Leave { leaving: Done } at 0");
}

#[test]
fn lease_is_reserved_for_waiting_processes() {
    let mut process = Process::new(true);
    let (first, _) = process.ask(None);
    let lease = process.win(first);
    let vote = answer(1, Verdict::Granted, 3, None);
    process.input(|keys, cx| keys.left_queue(&lease.claim, &vote, cx));
    assert_eq!(process.end(lease, true).1, "Reserve { px: 50 }, Leave { leaving: Done } at 0");
    let (_, news) = process.ask(None);
    assert_eq!(news, "attempts", "the next caller queries the meeting point first");
}

/// It has a place there, or may have, which holds up the others.
#[test]
fn lease_ended_before_the_meeting_point_answers_leaves_queue() {
    let (mut process, first) = Process::refused();
    process.attempt(first);
    // It was refused there, slept, and requests the key from all masters.
    process.callers[first].ask = Ask::All;
    let mut lease = process.win(first);
    process.input(|keys, cx| keys.lease_ends((&mut lease.claim, lease.lock), true, |_| true, cx));
    let (at, leave) = lease.claim.take_exits().meeting.expect("the meeting point is told");
    assert!(at == 0 && leave.exit().unwrap().gives_up_place);
}

/// As many of its releases as there are processes elsewhere.
#[test]
fn processes_waiting_at_other_masters_get_a_share_of_releases() {
    for (here, elsewhere, least, most) in [(3, 4, 450, 560), (6, 1, 110, 180), (3, 0, 5, 30)] {
        let mut process = Process::new(true);
        let mut open = 0;
        for _ in 0..1_000 {
            let (first, _) = process.ask(None);
            let mut lease = process.win(first);
            process.now += 1;
            let one = process.keys.uses.get_mut(lease.claim.key_use).unwrap();
            (one.waiters, one.waiters_elsewhere) = (here, elsewhere);
            process.input(|keys, cx| {
                keys.lease_ends((&mut lease.claim, lease.lock), true, |_| true, cx);
                keys.left(&lease.claim, lease.lock, cx);
            });
            let requests = requests_of(&mut lease);
            let calls = "Release, Leave { leaving: Open } at 0, \
                         Leave { leaving: Done } at 1, Leave { leaving: Done } at 2";
            open += usize::from(requests == calls);
            assert!(requests == calls || requests.starts_with("Reserve"), "{requests}");
        }
        assert!((least..=most).contains(&open), "{here} here, {elsewhere} elsewhere: {open}");
    }
}

#[test]
fn queues_of_other_masters_have_a_separate_count() {
    let mut process = Process::new(true);
    let (first, _) = process.ask(None);
    let mut lease = process.win(first);
    process.keys.uses.get_mut(lease.claim.key_use).unwrap().was_refused = true;
    process.input(|keys, cx| keys.lease_ends((&mut lease.claim, lease.lock), true, |_| true, cx));
    assert!(
        requests_of(&mut lease).ends_with("Leave { leaving: Done } at 2"),
        "it queries all masters"
    );
    for vote in [(0, 0), (1, 3), (2, 4)].map(|(at, it)| answer(at, Verdict::Granted, it, None)) {
        process.input(|keys, cx| keys.left_queue(&lease.claim, &vote, cx));
    }
    let one = process.keys.uses.get(lease.claim.key_use).unwrap();
    assert_eq!((one.waiters, one.waiters_elsewhere), (0, 7));
    let now = at(process.now);
    assert!(!process.keys.waiters.get(&key()).is_some_and(|one| one.waiting.is_contended(now)));
}

/// The next callers of this process could otherwise overtake the process that it has called.
#[test]
fn others_are_presumed_waiting_until_the_meeting_point_answers() {
    for (micros, presumed_ms) in [(100, 50), (1_000, 50), (10_000, 100)] {
        for (after, is_presumed) in [(presumed_ms - 1, true), (presumed_ms, false)] {
            let mut process = Process::new(true);
            process.fan_out = Duration::from_micros(micros);
            let (first, _) = process.ask(None);
            let lease = process.win(first);
            process.now += 100;
            process.end(lease, true);
            process.now += after;
            let next = process.ask(None).0;
            let asked = if is_presumed { Ask::First } else { Ask::All };
            assert_eq!(process.callers[next].ask, asked, "{micros} us, after {after} ms");
        }
    }
}

#[test]
fn release_is_plain_after_a_recent_answer_that_none_waits() {
    let mut process = Process::new(true);
    for is_fresh in [true, false] {
        let (first, _) = process.ask(None);
        let mut lease = process.win(first);
        process.now += 20;
        process
            .input(|keys, cx| keys.lease_ends((&mut lease.claim, lease.lock), true, |_| true, cx));
        process.input(|keys, cx| keys.left(&lease.claim, lease.lock, cx));
        let vote = answer(0, Verdict::Granted, 0, None);
        process.input(|keys, cx| keys.left_queue(&lease.claim, &vote, cx));
        process.now += if is_fresh { 5 } else { 15 };
        let (second, _) = process.ask(None);
        let lease = process.win(second);
        let release = process.end(lease, true).1;
        assert_eq!(release.contains("Leave"), !is_fresh, "{release}");
    }
}

#[test]
fn without_a_queue_a_release_is_plain_and_a_long_lease_yields() {
    let mut process = Process::new(false);
    let (first, _) = process.ask(None);
    let (_, _) = process.ask(None);
    let lease = process.win(first);
    process.now += 200;
    assert_eq!(
        process.end(lease, true),
        (String::new(), "Release".into()),
        "it lets others go first"
    );
}

#[test]
fn others_go_first_after_three_untaken_leases() {
    let mut process = Process::new(true);
    let mut next = process.ask(None).0;
    for number in 1..=3 {
        let (waiting, _) = process.ask(None);
        let lease = process.win(next);
        let attempts = process.end(lease, false).0.contains("attempts");
        assert_eq!(attempts, number < 3, "after lease {number}");
        next = waiting;
    }
}
