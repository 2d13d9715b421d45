//! A head's actions while fewer masters vote than a quorum, and when another one votes again.

use super::*;

/// One caller, whose attempt was lost for want of votes.
fn voteless(random: f64) -> Waiting<u32> {
    let mut waiting = World::after(&[JOIN]).waiting;
    assert_eq!(waiting.lost_for_want_of_votes(None, start(random)), Step::Wait);
    waiting
}

#[test]
fn returning_vote_ends_a_long_pause_and_disturbs_no_sleep() {
    let mut pausing = World::after(&[JOIN]).waiting;
    pausing.lost(Refusal::Silent, None, Moment { fan_out: ms(100), ..start(1.0) });
    assert_eq!(pausing.votes_gained(start(1.0)), Step::Wait);
    assert_eq!(sleep(pausing), (FAN_OUT * 4, first(1)));
    let mut watched = watching(None, 0.5);
    assert_eq!(watched.votes_gained(start(1.0)), Step::Wait);
    assert_eq!(watched, watching(None, 0.5));
}

/// Earlier losses do not matter, because this has nothing to do with contention.
#[test]
fn without_a_quorum_each_caller_tries_once_at_its_own_time() {
    let sleeps = [0.0, 0.5, 1.0].map(|random| sleep(voteless(random)));
    assert_eq!(sleeps, [750, 875, 1_000].map(|millis| (ms(millis), all(1))));
    let mut world = World::after(&[JOIN]);
    let (mut attempts, end) = (0, Instant::ORIGIN.saturating_add(Duration::from_secs(10)));
    while world.now < end {
        attempts += u32::from(world.attempting.is_some());
        world.happen(Event::LostForWantOfVotes);
        world.happen(Event::Due);
    }
    assert!((10..=14).contains(&attempts), "{attempts} attempts in ten seconds");
}

#[test]
fn returning_quorum_wakes_waiters_at_different_times_in_40_ms() {
    for (random, fan_out, pause) in
        [(0.25, ms(1), ms(1)), (0.5, ms(1), ms(2)), (1.0, ms(1), ms(4)), (1.0, ms(100), ms(40))]
    {
        let mut waiting = voteless(0.5);
        assert_eq!(waiting.votes_gained(Moment { fan_out, ..start(random) }), Step::Wait);
        assert_eq!(sleep(waiting), (pause, all(1)));
    }
}

/// Masters come to vote one after the other.
#[test]
fn a_head_that_was_woken_is_not_put_off_by_the_next_master() {
    let mut waiting = voteless(0.5);
    let at = |now: u64, random| Moment {
        now: Instant::ORIGIN.saturating_add(ms(now)),
        fan_out: ms(5),
        ..start(random)
    };
    waiting.votes_gained(at(0, 0.5));
    waiting.votes_gained(at(1, 1.0));
    assert_eq!(sleep(waiting), (ms(10), all(1)));
}

/// Otherwise a quarantine of an hour would end in the widest rests.
#[test]
fn attempts_without_enough_votes_show_no_contenders() {
    let mut waiting = World::after(&[JOIN]).waiting;
    for _ in 0..10 {
        waiting.lost_for_want_of_votes(None, start(0.5));
        waiting.attempt(Ask::All);
    }
    assert!(!waiting.is_contended(Instant::ORIGIN));
    waiting.lost(Refusal::Silent, None, start(1.0));
    assert_eq!(sleep(waiting), (retry::pause(0, FAN_OUT, 1.0), first(1)));
}

/// It calls no process and no process calls it, whatever is reported to it in the meantime.
#[test]
fn a_head_that_sees_no_quorum_leaves_the_queue() {
    let mut waiting = behind(1, 0.5);
    waiting.tick(waiting.due().unwrap());
    let first_answer = Some(Place::First.answered(0));
    let step = waiting.lost(Refusal::NoQuorum, first_answer, start(1.0));
    assert_eq!((step, waiting.place()), (Step::Leave(0), None));
    for attempt in 0..12 {
        let mut called_now = waiting.clone();
        for call in [Call::Next, Call::Try] {
            assert_eq!(called_now.called(0, call, RESERVATION, start(0.0)), Step::Wait);
        }
        assert_eq!(called_now.called(0, Call::Go, RESERVATION, start(0.0)), Step::Leave(0));
        assert_eq!(called_now.changed(0, start(0.0)), Step::Wait);
        assert_eq!(called_now, waiting, "nothing makes it come sooner");
        let pause = retry::without_quorum(attempt, FAN_OUT, 1.0);
        assert!(pause <= ms(100) + FAN_OUT);
        assert_eq!(sleep(waiting.clone()), (pause, all(1)));
        waiting.tick(waiting.due().unwrap());
        assert_eq!(waiting.lost(Refusal::NoQuorum, None, start(1.0)), Step::Wait);
    }
    assert!(!waiting.is_contended(Instant::ORIGIN.saturating_add(ms(2_000))));
    waiting.tick(waiting.due().unwrap());
    assert_eq!(waiting.lost(Refusal::Held, None, start(1.0)), first(1), "a quorum answers");
    assert_eq!(waiting.tries, 0);
}
