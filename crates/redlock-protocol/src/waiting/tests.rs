//! The head's reaction to each event, one rule after the other.

use redlock_core::{Call, Cause, Verdict};

use self::world::{Event, FAN_OUT, Place, Said, World, moment};
use super::*;
use crate::retry;

mod answers;
mod late;
mod orders;
mod two;
mod unqueued;
mod votes;
mod world;

const JOIN: Event = Event::Join { is_held_here: false };
const JOIN_BEHIND_HOLDER: Event = Event::Join { is_held_here: true };
const REFUSED: Event = Event::Lost(Refusal::Held);
const HELD: Event = Event::Answer(0, Said::Held);
const FREE: Event = Event::Answer(0, Said::Free);
const NOTHING: Event = Event::Answer(0, Said::Nothing);
const FIRST: Event = Event::NotLetIn(Place::First);
const RESERVATION: Duration = ms(50);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The beginning, with this draw.
fn start(random: f64) -> Moment {
    moment(Instant::ORIGIN, random)
}

/// One caller, the first in the queue, that watches.
fn asking() -> Waiting<u32> {
    World::after(&[JOIN, REFUSED, FIRST]).waiting
}

/// One caller that watches a key, whose holder keeps it for `ttl`.
fn watching(ttl: Option<Duration>, random: f64) -> Waiting<u32> {
    let mut waiting = asking();
    let held = Verdict::Held { token: None, ttl };
    assert_eq!(waiting.watch_answered(0, &held, start(random)), Step::Wait);
    waiting
}

/// One caller with a place after `rank` others.
fn behind(rank: u32, random: f64) -> Waiting<u32> {
    let mut waiting = World::after(&[JOIN, REFUSED]).waiting;
    let answer = Some(Place::Behind(rank).answered(0));
    assert_eq!(waiting.lost(Refusal::Held, answer, start(random)), Step::Wait);
    waiting
}

/// One caller at masters without a queue, that watches.
fn unqueued() -> Waiting<u32> {
    let mut waiting = World::after(&[JOIN]).waiting;
    assert_eq!(waiting.lost(Refusal::Held, None, start(0.5)), first(1));
    assert_eq!(waiting.lost(Refusal::Held, None, start(0.5)), Step::Watch);
    waiting.watch_sent(Some(0), start(0.5));
    assert_eq!(waiting.watch_answered(0, &Verdict::HELD, start(0.5)), Step::Wait);
    waiting
}

/// Returns how long a head sleeps from the beginning, and its next step.
fn sleep(mut waiting: Waiting<u32>) -> (Duration, Step<u32>) {
    let due = waiting.due().expect("it sleeps");
    let early = due.saturating_sub(Duration::from_nanos(1));
    assert_eq!(waiting.tick(early), Step::Wait, "it is not time yet");
    (due.saturating_since(Instant::ORIGIN), waiting.tick(due))
}

fn all(caller: u32) -> Step<u32> {
    Step::Attempt(caller, Ask::All)
}

fn first(caller: u32) -> Step<u32> {
    Step::Attempt(caller, Ask::First)
}

fn called(caller: u32) -> Step<u32> {
    Step::Attempt(caller, Ask::Called)
}

#[test]
fn refused_caller_queues_immediately_and_the_first_watches() {
    let mut waiting = World::after(&[JOIN]).waiting;
    assert_eq!(waiting.lost(Refusal::Held, None, start(0.5)), first(1));
    waiting.entering(0);
    let step = waiting.lost(Refusal::Held, Some(Place::First.answered(0)), start(0.5));
    assert_eq!((step, waiting.place()), (Step::Watch, Some(0)));
}

#[test]
fn contenders_that_split_the_masters_meet_in_the_queue() {
    let mut waiting = World::after(&[JOIN]).waiting;
    assert_eq!(waiting.lost(Refusal::Split, None, start(0.5)), first(1));
}

#[test]
fn first_waiter_sleeps_until_expiry_or_100_ms_doubling_to_1_s() {
    for (left, wakes) in [(0, 2), (60, 62), (97, 99), (98, 100), (1_000, 100)] {
        let slept = sleep(watching(Some(ms(left)), 0.5));
        assert_eq!(slept, (ms(wakes), all(1)), "{left} ms were left");
    }
    for (random, sleep_for) in [(0.0, 75), (1.0, 125)] {
        assert_eq!(sleep(watching(None, random)), (ms(sleep_for), all(1)));
    }
    let mut world = World::after(&[JOIN, REFUSED, FIRST, HELD]);
    let sleeps = [100, 200, 400, 800, 1_000, 1_000].map(|millis| {
        let slept = world.waiting.due().unwrap().saturating_since(world.now);
        [Event::Due, FIRST, HELD].into_iter().for_each(|event| world.happen(event));
        (slept, ms(millis))
    });
    sleeps.into_iter().for_each(|(slept, wanted)| assert_eq!(slept, wanted));
}

#[test]
fn a_queued_head_renews_its_place_less_often_further_back() {
    for (rank, random, wakes) in [
        (1, 0.5, 310),
        (1, 1.0, 387),
        (2, 0.5, 410),
        (5, 0.5, 710),
        (6, 0.0, 600),
        (6, 1.0, 1_000),
        (4_000, 0.5, 4_000),
    ] {
        let (slept, then) = sleep(behind(rank, random));
        assert_eq!((slept.as_millis(), then), (wakes, first(1)), "{rank}");
    }
}

/// Those before it may have stopped: it enters again when the one that was called has had its time.
#[test]
fn a_head_enters_again_after_the_reservation_for_another() {
    for (rank, random, wakes) in [(1, 1.0, 65), (1, 0.0, 62), (4, 1.0, 80), (1_000, 1.0, 160)] {
        let mut waiting = World::after(&[JOIN, REFUSED]).waiting;
        let answer = Place::Behind(rank).answered(0);
        let answer = Some(QueueAnswer { reserved_for: Some(ms(50)), ..answer });
        assert_eq!(waiting.lost(Refusal::Held, answer, start(random)), Step::Wait);
        assert_eq!(sleep(waiting), (ms(wakes), first(1)), "{rank}");
    }
}

#[test]
fn a_push_is_followed_by_an_immediate_entry() {
    assert_eq!(watching(None, 0.5).changed(0, start(0.5)), first(1));
    assert_eq!(asking().changed(0, start(0.5)), first(1), "before the answer to the look");
    assert_eq!(watching(None, 0.5).changed(1, start(0.5)), Step::Wait, "not its master");
}

/// A server whose table is full pushes after each watch.
#[test]
fn pushes_that_nothing_comes_of_lead_to_one_entry_a_second() {
    let mut world = World::after(&[JOIN, REFUSED, FIRST, HELD]);
    let (mut entries, end) = (0, Instant::ORIGIN.saturating_add(Duration::from_secs(10)));
    while world.now < end {
        world.happen(Event::Pushed(0));
        if world.attempting.is_none() {
            world.happen(Event::Due);
        }
        entries += 1;
        [FIRST, HELD].into_iter().for_each(|event| world.happen(event));
    }
    assert!(entries < 120, "{entries} entries in ten seconds");
    // It sleeps once without a push, and the next one counts again.
    world.happen(Event::Due);
    let well = [FIRST, HELD, Event::Due, FIRST, HELD, Event::Pushed(0)];
    well.into_iter().for_each(|event| world.happen(event));
    assert_eq!(world.attempting, Some(1));
}

#[test]
fn a_key_that_is_free_at_the_look_is_asked_for_again() {
    assert_eq!(asking().watch_answered(0, &Verdict::Free, start(0.5)), first(1));
}

#[test]
fn a_called_head_takes_the_key_from_any_sleep() {
    for mut waiting in [asking(), watching(None, 0.5), behind(3, 0.5)] {
        assert_eq!(waiting.clone().called(1, Call::Go, RESERVATION, start(0.5)), Step::Leave(1));
        assert_eq!(waiting.called(0, Call::Go, RESERVATION, start(0.5)), called(1));
    }
}

#[test]
fn a_call_for_an_earlier_wait_is_passed_on() {
    let idle = World::after(&[JOIN, REFUSED, FIRST, HELD, Event::LeaveFirst]);
    assert_eq!(idle.left, [0]);
    for mut waiting in [
        idle.waiting,
        World::after(&[JOIN]).waiting,
        World::after(&[JOIN, REFUSED, FIRST, FREE, Event::Won, JOIN_BEHIND_HOLDER]).waiting,
    ] {
        assert_eq!(waiting.called(0, Call::Go, RESERVATION, start(0.5)), Step::Leave(0));
        assert_eq!(waiting.called(0, Call::Try, RESERVATION, start(0.5)), Step::Wait);
    }
}

/// The others had not answered yet when it was called.
#[test]
fn a_head_called_during_a_lost_attempt_takes_the_key_next() {
    let mut world = World::after(&[JOIN, REFUSED, FIRST, HELD, Event::Due]);
    world.happen(Event::Called(0, Call::Go));
    assert!(world.attempting.is_some());
    let step = world.waiting.lost(Refusal::Held, Some(Place::First.answered(0)), world.moment());
    assert_eq!(step, called(1));
}

#[test]
fn the_next_enters_when_the_reservation_before_it_is_over() {
    for (random, wakes) in [(0.0, 52_000), (0.5, 53_500), (1.0, 55_000)] {
        let mut waiting = behind(1, 0.5);
        let step = waiting.called(0, Call::Next, RESERVATION, start(random));
        assert_eq!((step, sleep(waiting)), (Step::Wait, (Duration::from_micros(wakes), first(1))));
    }
    let mut soon = watching(Some(ms(20)), 0.5);
    soon.called(0, Call::Next, RESERVATION, start(0.5));
    assert_eq!(sleep(soon).0, ms(22), "a sleep that ends sooner stays");
}

#[test]
fn a_head_told_to_try_does_so_within_two_fan_outs() {
    for (random, pause) in [(0.5, 1), (1.0, 2)] {
        let mut waiting = watching(None, 0.5);
        assert_eq!(waiting.called(0, Call::Try, RESERVATION, start(random)), Step::Wait);
        assert_eq!(sleep(waiting), (FAN_OUT * pause, first(1)));
    }
}

/// A process that M has let in needs a moment for the others. But its key may also be left over.
#[test]
fn a_head_told_to_try_waits_for_an_attempt_at_m_and_no_longer() {
    let again = |seen_ago: Duration| {
        let mut waiting = watching(None, 0.5);
        let at = |after| Moment { now: Instant::ORIGIN.saturating_add(after), ..start(0.5) };
        waiting.called(0, Call::Try, RESERVATION, at(seen_ago));
        assert_eq!(waiting.tick(at(seen_ago + FAN_OUT).now), first(1));
        let taken = Some(Place::First.answered(0));
        assert_eq!(waiting.lost(Refusal::Held, taken, at(seen_ago + FAN_OUT)), Step::Watch);
        waiting.watch_sent(Some(0), at(seen_ago + FAN_OUT));
        waiting.watch_answered(0, &Verdict::HELD, at(seen_ago + FAN_OUT));
        sleep(waiting)
    };
    assert_eq!(again(ms(3)), (ms(25), called(1)));
    assert_eq!(again(ms(60)), (ms(60) + FAN_OUT, called(1)), "it has seen that key for long");
}

#[test]
fn after_departed_waiters_it_enters_again_160_times() {
    let gone = Some(Place::BehindThoseThatAreGone.answered(0));
    let mut waiting = World::after(&[JOIN, REFUSED]).waiting;
    let mut entries = 0;
    while waiting.lost(Refusal::Held, gone, start(0.5)) == first(1) {
        entries += 1;
    }
    assert_eq!(entries, DROPS_MAX);
    assert_eq!(sleep(waiting).1, first(1));
}

/// Earlier sleeps after live waiters use up none of these entries.
#[test]
fn a_long_wait_uses_up_no_entries_after_departed_waiters() {
    let (gone, there) = (Place::BehindThoseThatAreGone.answered(0), Place::Behind(3).answered(0));
    let mut waiting = World::after(&[JOIN, REFUSED]).waiting;
    for _ in 0..2 * DROPS_MAX {
        assert_eq!(waiting.lost(Refusal::Held, Some(there), start(0.5)), Step::Wait);
        assert_eq!(
            waiting.tick(start(0.5).now.saturating_add(ms(60_000))),
            first(1),
            "it renews its place"
        );
    }
    for _ in 0..DROPS_MAX {
        assert_eq!(waiting.lost(Refusal::Held, Some(gone), start(0.5)), first(1));
    }
    assert_eq!(waiting.lost(Refusal::Held, Some(gone), start(0.5)), Step::Wait);
}

/// Another caller of this process has its own.
#[test]
fn the_next_head_enters_again_as_often() {
    let gone = Some(Place::BehindThoseThatAreGone.answered(0));
    let mut waiting = World::after(&[JOIN, JOIN, REFUSED]).waiting;
    assert_eq!(waiting.lost(Refusal::Held, gone, start(0.5)), first(1));
    waiting.won(Instant::ORIGIN);
    assert!(matches!(waiting.released(Instant::ORIGIN), Step::Attempt(2, _)));
    for _ in 0..DROPS_MAX {
        assert_eq!(waiting.lost(Refusal::Held, gone, start(0.5)), first(2));
    }
    assert_eq!(waiting.lost(Refusal::Held, gone, start(0.5)), Step::Wait);
}

#[test]
fn a_reservation_that_names_it_is_as_good_as_a_call() {
    let ours = Some(Place::OursIsReserved.answered(0));
    assert_eq!(World::after(&[JOIN]).waiting.lost(Refusal::Held, ours, start(0.5)), called(1));
}

/// The holder has no key at the meeting point, so another immediate request there is useless.
#[test]
fn a_head_let_in_only_by_m_takes_a_place_and_sleeps() {
    let mut world = World::after(&[JOIN, REFUSED, Event::Lost(Refusal::Alone)]);
    assert_eq!(world.waiting.head, Head::Queueing { at: 0 });
    world.happen(HELD);
    let mut called_now = world.waiting.clone();
    world.happen(FREE);
    assert_eq!(sleep(world.waiting), (ms(100), all(1)));
    assert_eq!(called_now.called(0, Call::Go, RESERVATION, start(0.5)), called(1));
}

/// A ballot is also refused if another process was faster. Processes that came later must not
/// overtake this one because of that.
#[test]
fn head_with_refused_ballot_keeps_its_start_but_not_its_place() {
    let mut world = World::after(&[JOIN, REFUSED, FIRST, HELD, Event::Due]);
    let since = world.waiting.since();
    world.happen(Event::Lost(Refusal::Silent));
    assert_eq!((world.waiting.place(), world.waiting.since()), (None, since));
    for event in [Event::Due, Event::Won] {
        world.happen(event);
    }
    assert_eq!(world.waiting.since(), world.now, "the next caller's wait starts with its turn");
}

#[test]
fn callers_standing_back_leave_the_queue_and_reenter_later() {
    let mut waiting = World::after(&[JOIN, JOIN, REFUSED, FIRST, HELD]).waiting;
    let (now, back_at) = (start(0.5).now, start(0.5).now.saturating_add(ms(200)));
    assert_eq!(waiting.place(), Some(0));
    assert_eq!(waiting.stand_back(back_at), Step::Leave(0));
    assert_eq!(waiting.released(now), Step::Wait);
    assert_eq!(waiting.due(), Some(back_at));
    assert_eq!(waiting.called(0, Call::Go, RESERVATION, start(0.5)), Step::Leave(0));
    assert_eq!(waiting.tick(back_at), first(1));
}

#[test]
fn callers_that_come_while_others_go_first_wait_as_well() {
    let mut waiting = Waiting::<u32>::new();
    let (now, back_at) = (start(0.5).now, start(0.5).now.saturating_add(ms(200)));
    assert_eq!(waiting.stand_back(back_at), Step::Wait);
    assert!(!waiting.is_over(now));
    assert_eq!(waiting.join(1, false, now), Step::Wait);
    assert_eq!(waiting.due(), Some(back_at));
}

#[test]
fn without_a_queue_split_contenders_return_one_by_one() {
    for (random, fan_outs) in [(0.0, 1), (0.5, 2), (1.0, 3)] {
        let mut waiting = World::after(&[JOIN, REFUSED]).waiting;
        assert_eq!(waiting.lost(Refusal::Split, None, start(random)), Step::Wait);
        assert_eq!(sleep(waiting), (FAN_OUT * fan_outs, first(1)));
    }
}

#[test]
fn a_full_queue_is_waited_for_outside() {
    let mut waiting = World::after(&[JOIN, REFUSED]).waiting;
    let full = Some(Place::Full.answered(0));
    assert_eq!(waiting.lost(Refusal::Held, full, start(0.5)), Step::Watch);
    assert_eq!(waiting.place(), None);
}

#[test]
fn lost_meeting_point_is_replaced_by_the_next_within_40_ms() {
    for waiting in [asking(), watching(None, 0.5), behind(3, 0.5)] {
        for (random, fan_out, pause) in
            [(1.0, FAN_OUT, FAN_OUT * 4), (0.5, FAN_OUT, FAN_OUT * 2), (1.0, ms(30), ms(40))]
        {
            let mut waiting = waiting.clone();
            let at = Moment { fan_out, ..start(random) };
            assert_eq!(waiting.lost_sight(0, at), Step::Wait);
            assert_eq!((waiting.place(), sleep(waiting)), (None, (pause, first(1))));
        }
    }
}

/// Its answer is missing or of no use to a waiter, or there is no such master.
#[test]
fn without_a_meeting_point_retries_follow_doubling_pauses() {
    let mut silent = asking();
    silent.watch_answered(0, &Verdict::Unknown(Cause::TimedOut), start(1.0));
    let mut none = World::after(&[JOIN, REFUSED]).waiting;
    assert_eq!(none.lost(Refusal::Held, None, start(1.0)), Step::Watch);
    assert_eq!(none.watch_sent(None, start(1.0)), Step::Wait);
    let mut unanswered = World::after(&[JOIN]).waiting;
    assert_eq!(unanswered.lost(Refusal::Silent, None, start(1.0)), Step::Wait);
    let mut placeless = World::after(&[JOIN, REFUSED, Event::Lost(Refusal::Alone)]).waiting;
    placeless.silent(0, start(1.0));
    for mut waiting in [silent, none, unanswered, placeless] {
        for attempt in 0..4 {
            let pause = retry::pause(attempt, FAN_OUT, 1.0);
            assert_eq!(sleep(waiting.clone()), (pause, first(1)));
            waiting.tick(waiting.due().unwrap());
            waiting.lost(Refusal::Silent, None, start(1.0));
        }
    }
}

/// A refused caller first queries the meeting point, and so do callers that come within ten votes.
#[test]
fn key_is_contended_for_ten_votes_after_others_were_seen() {
    for (refusal, is_contended) in
        [(Refusal::Held, true), (Refusal::Split, true), (Refusal::Silent, false)]
    {
        let waiting = World::after(&[JOIN, Event::Lost(refusal), Event::LeaveFirst]).waiting;
        for (votes, contends) in [(0, is_contended), (9, is_contended), (10, false)] {
            let mut waiting = waiting.clone();
            let now = Instant::ORIGIN.saturating_add(FAN_OUT * votes);
            assert_eq!(waiting.is_over(now), !contends, "{refusal:?} {votes}");
            let wanted = if contends { first(9) } else { all(9) };
            assert_eq!(waiting.join(9, false, now), wanted, "{refusal:?} {votes}");
        }
    }
    let mut answer = Waiting::<u32>::new();
    answer.others_wait(Instant::ORIGIN.saturating_add(ms(1)));
    assert_eq!(answer.join(9, false, Instant::ORIGIN), first(9));
}

#[test]
fn a_refusal_by_a_caller_of_this_process_is_no_contention() {
    let mut world = World::after(&[JOIN, Event::LostHere]);
    assert!(matches!(world.waiting.head, Head::AwaitingRelease { .. }));
    assert!(!world.waiting.is_contended(world.now));
    world.happen(Event::Released);
    assert_eq!(world.attempting, Some(1));
}

#[test]
fn behind_a_holder_of_this_process_the_head_asks_once_a_second() {
    for waiting in [
        World::after(&[JOIN_BEHIND_HOLDER]).waiting,
        World::after(&[JOIN, Event::LostHere]).waiting,
    ] {
        assert_eq!(sleep(waiting), (ms(1_000), first(1)));
    }
    let world = World::after(&[JOIN, JOIN, Event::Won]);
    assert_eq!(sleep(world.waiting), (ms(1_000), first(2)));
}

#[test]
fn the_next_in_this_process_asks_right_behind_a_release() {
    for (before, wanted) in [(&[][..], all(2)), (&[REFUSED, FIRST, FREE], first(2))] {
        let mut world = World::after(&[JOIN]);
        before.iter().chain(&[Event::Won, JOIN_BEHIND_HOLDER]).for_each(|it| world.happen(*it));
        assert_eq!(world.waiting.released(world.now), wanted);
    }
    let mut slow = World::after(&[JOIN_BEHIND_HOLDER, Event::Due, FIRST, HELD]);
    assert_eq!(slow.waiting.released(slow.now), first(1), "it sleeps at the meeting point");
}

#[test]
fn caller_that_lost_an_attempt_is_head_or_follows_the_others() {
    let mut waiting = Waiting::new();
    assert!(waiting.join_attempting(1, Instant::ORIGIN), "it continues from its attempt");
    assert_eq!(waiting.clone().join(2, false, Instant::ORIGIN), Step::Wait, "one head");
    assert_eq!(waiting.lost(Refusal::Held, None, start(0.5)), first(1));
    assert!(!waiting.join_attempting(2, Instant::ORIGIN));
    assert_eq!(waiting.callers().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(waiting.leave(1, Instant::ORIGIN), first(2));
}

#[test]
fn place_of_a_leaving_caller_goes_to_the_next_or_is_given_up() {
    let mut world = World::after(&[JOIN, REFUSED, JOIN, FIRST, HELD]);
    world.happen(Event::LeaveFirst);
    assert_eq!((world.waiting.place(), world.left.len()), (Some(0), 0));
    assert_eq!(world.waiting.clone().called(0, Call::Go, RESERVATION, start(0.5)), called(2));
    world.happen(Event::LeaveFirst);
    assert_eq!((world.waiting.place(), &world.left[..]), (None, &[0][..]));
}

#[test]
fn nothing_is_remembered_without_waiters_after_the_contention() {
    let world = World::after(&[JOIN, REFUSED, Event::LeaveFirst]);
    assert!(!world.waiting.is_over(world.now));
    let after = world.now.saturating_add(fresh_for(FAN_OUT));
    assert!(world.waiting.is_over(after));
    assert!(!asking().is_over(after), "a caller waits");
}

#[test]
fn a_head_leaves_the_queue_of_a_silent_master() {
    let world = World::after(&[JOIN, REFUSED, FIRST, NOTHING]);
    assert_eq!((world.waiting.place(), &world.left[..]), (None, &[0][..]));
}
