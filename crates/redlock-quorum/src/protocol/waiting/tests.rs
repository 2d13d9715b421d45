//! What a head does at each event, one rule after the other.

use redlock_core::{Cause, Verdict};

use self::world::{Event, FAN_OUT, Said, World};
use super::*;
use crate::protocol::retry;

mod orders;
mod others;
mod votes;
mod world;

const JOIN: Event = Event::Join { is_held_here: false };
const JOIN_BEHIND_HOLDER: Event = Event::Join { is_held_here: true };
const REFUSED: Event = Event::Lost(Refusal::Held);
const HELD: Event = Event::Answer(0, Said::Held);
const FREE: Event = Event::Answer(0, Said::Free);
const NOTHING: Event = Event::Answer(0, Said::Nothing);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// One caller, whose attempt was refused.
fn looking() -> Waiting<u32> {
    World::after(&[JOIN, REFUSED]).waiting
}

/// One caller, that watches a key which its holder keeps for so long.
fn watching(ttl: Option<Duration>, random: f64) -> Waiting<u32> {
    let mut waiting = looking();
    let held = Verdict::Held { token: None, ttl };
    assert_eq!(waiting.looked(0, &held, Instant::ORIGIN, FAN_OUT, random), Step::Wait);
    waiting
}

/// How long a head sleeps from the beginning, and what it does then.
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
    Step::Attempt(caller, Ask::MeetingPointFirst)
}

/// What a caller that comes next does at once.
fn next_join(waiting: &mut Waiting<u32>, is_held_here: bool, now: Instant) -> Step<u32> {
    waiting.join(9, is_held_here, now)
}

#[test]
fn a_sleep_ends_when_the_key_expires_and_all_masters_are_asked() {
    // Redis keeps a key through the whole millisecond in which it expires.
    for (left, wakes) in [(0, 1), (300, 301), (873, 874), (874, 875)] {
        let slept = sleep(watching(Some(ms(left)), 0.5));
        assert_eq!(slept, (ms(wakes), all(1)), "{left} ms were left");
    }
}

#[test]
fn a_key_that_lives_longer_is_looked_at_again_within_a_second_and_not_in_step() {
    for left in [Some(ms(1_000)), Some(ms(60_000)), Some(Duration::MAX), None] {
        let sleeps = [0.0, 0.5, 1.0].map(|random| sleep(watching(left, random)));
        assert_eq!(sleeps, [750, 875, 1_000].map(|millis| (ms(millis), Step::Look)), "{left:?}");
    }
    assert_eq!(sleep(watching(Some(ms(875)), 0.5)), (ms(875), Step::Look));
}

#[test]
fn a_push_is_followed_by_an_attempt_at_the_meeting_point_at_once() {
    assert_eq!(watching(None, 0.5).changed(0), first(1));
    assert_eq!(looking().changed(0), first(1), "it came before the answer to the look");
    assert_eq!(watching(None, 0.5).changed(1), Step::Wait, "not its master");
}

/// How often a head looks in ten seconds at a key that never changes, where a push follows each
/// look: that of a server whose table is full.
#[test]
fn pushes_that_prove_useless_lead_to_one_look_a_second_and_a_release_is_seen_by_it() {
    let mut world = World::after(&[JOIN, REFUSED, Event::Answer(0, Said::HeldForGood)]);
    let (mut looks, end) = (0, Instant::ORIGIN.saturating_add(Duration::from_secs(10)));
    while world.now < end {
        world.happen(Event::Pushed(0));
        if world.attempting.is_some() {
            world.happen(REFUSED);
        }
        world.happen(Event::Due);
        if world.looking.is_some() {
            looks += 1;
            world.happen(Event::Answer(0, Said::HeldForGood));
        }
    }
    assert!((9..=16).contains(&looks), "{looks} looks in ten seconds");
    world.happen(Event::Pushed(0));
    world.happen(Event::Due);
    world.happen(FREE);
    assert_eq!(world.attempting, Some(1));
}

#[test]
fn pushes_are_of_use_again_when_none_came_for_the_time_of_a_look() {
    let good = Event::Answer(0, Said::HeldForGood);
    let mut world = World::after(&[JOIN, REFUSED, good]);
    while !world.waiting.pushes.are_useless() {
        for event in [Event::Pushed(0), REFUSED, Event::Due, good] {
            world.happen(event);
        }
    }
    world.happen(Event::Due);
    world.happen(good);
    world.happen(Event::Pushed(0));
    assert_eq!(world.attempting, Some(1));
}

/// The first refusal is followed by a look: the holder may keep the key for long.
#[test]
fn a_refusal_is_followed_by_a_rest_that_widens_with_each_one_up_to_40_ms() {
    let mut waiting = looking();
    for refusals in 2..20 {
        waiting.attempt(Ask::All);
        assert_eq!(waiting.lost(Refusal::Held, Instant::ORIGIN, FAN_OUT, 1.0), Step::Wait);
        assert_eq!(waiting.changed(0), Step::Wait, "nothing wakes it");
        let widest = ms(40).min(FAN_OUT * (1 << refusals));
        assert_eq!(sleep(waiting.clone()), (widest, Step::Look));
    }
}

/// Otherwise the callers of one process would rest ever longer than those of others.
#[test]
fn each_key_that_is_won_narrows_the_next_rest() {
    let rest = |wins: usize| {
        let mut waiting = looking();
        for _ in 0..4 {
            waiting.attempt(Ask::All);
            waiting.lost(Refusal::Held, Instant::ORIGIN, FAN_OUT, 1.0);
        }
        for _ in 0..wins {
            waiting.attempt(Ask::All);
            waiting.won(Instant::ORIGIN);
            next_join(&mut waiting, false, Instant::ORIGIN);
        }
        waiting.attempt(Ask::All);
        waiting.lost(Refusal::Held, Instant::ORIGIN, FAN_OUT, 1.0);
        sleep(waiting).0
    };
    assert_eq!([0, 1, 2].map(rest), [64, 32, 16].map(|times| ms(40).min(FAN_OUT * times)));
}

#[test]
fn a_caller_that_won_leaves_the_next_three_free_looks_of_its_own() {
    let mut world = World::after(&[JOIN, REFUSED, FREE, REFUSED, Event::Due, FREE]);
    for event in [JOIN, JOIN, Event::Won, Event::Released] {
        world.happen(event);
    }
    for _ in 0..FREE_LOOKS_MAX {
        for event in [REFUSED, Event::Due, FREE] {
            world.happen(event);
        }
        assert_eq!(world.attempting, Some(2));
    }
}

#[test]
fn a_master_out_of_sight_is_left_for_all_others_within_40_ms() {
    for is_looking in [true, false] {
        for (random, fan_out, pause) in [
            (1.0, FAN_OUT, FAN_OUT * 4),
            (0.5, FAN_OUT, FAN_OUT * 2),
            (1.0, ms(30), ms(40)),
            (0.0, ms(30), ms(0)),
        ] {
            let mut waiting = if is_looking { looking() } else { watching(None, 0.5) };
            assert_eq!(waiting.lost_sight(0, Instant::ORIGIN, fan_out, random), Step::Wait);
            assert_eq!(waiting.due(), Some(Instant::ORIGIN.saturating_add(pause)));
            assert_eq!(waiting.tick(waiting.due().unwrap()), all(1));
        }
    }
}

#[test]
fn three_looks_in_a_row_may_find_the_key_free_and_the_fourth_ends_in_a_pause() {
    let mut world = World::after(&[JOIN]);
    world.happen(REFUSED);
    for _ in 0..FREE_LOOKS_MAX {
        world.happen(FREE);
        assert!(world.attempting.is_some());
        world.happen(REFUSED);
        world.happen(Event::Due);
    }
    let mut interrupted = world.clone();
    world.happen(FREE);
    assert!(world.attempting.is_none());
    assert!(matches!(world.waiting.head, Head::Pausing { ask: Ask::All, .. }));
    // A look that finds a holder is no such look.
    for event in [HELD, Event::Due, REFUSED, Event::Due, FREE] {
        interrupted.happen(event);
    }
    assert!(interrupted.attempting.is_some(), "{:?}", interrupted.waiting);
}

#[test]
fn behind_a_pause_without_news_free_looks_are_counted_anew() {
    let mut world = World::after(&[JOIN, REFUSED]);
    for _ in 0..FREE_LOOKS_MAX {
        for event in [FREE, REFUSED, Event::Due] {
            world.happen(event);
        }
    }
    for event in [NOTHING, Event::Due, REFUSED, Event::Due, FREE] {
        world.happen(event);
    }
    assert!(world.attempting.is_some(), "{:?}", world.waiting);
}

#[test]
fn a_look_that_finds_the_key_free_is_followed_by_an_attempt_at_the_meeting_point() {
    let look = looking().looked(0, &Verdict::Free, Instant::ORIGIN, FAN_OUT, 0.5);
    assert_eq!(look, first(1));
}

/// Its answer is missing, it says what no waiter can use, or there is no such master.
#[test]
fn without_a_meeting_point_all_are_asked_after_a_blind_pause() {
    let mut silent = looking();
    silent.looked(0, &Verdict::Unknown(Cause::TimedOut), Instant::ORIGIN, FAN_OUT, 1.0);
    let mut none = World::after(&[JOIN]).waiting;
    assert_eq!(none.lost(Refusal::Held, Instant::ORIGIN, FAN_OUT, 1.0), Step::Look);
    assert_eq!(none.look_sent(None, Instant::ORIGIN, FAN_OUT, 1.0), Step::Wait);
    let mut unanswered = World::after(&[JOIN]).waiting;
    let step = unanswered.lost(Refusal::Silent, Instant::ORIGIN, FAN_OUT, 1.0);
    assert_eq!(step, Step::Wait);
    for waiting in [silent, none, unanswered] {
        assert_eq!(sleep(waiting), (retry::pause(0, FAN_OUT, 1.0), all(1)));
    }
}

#[test]
fn blind_pauses_double_with_each_refusal() {
    let mut waiting = World::after(&[JOIN]).waiting;
    for attempt in 0..4 {
        waiting.lost(Refusal::Silent, Instant::ORIGIN, FAN_OUT, 1.0);
        assert_eq!(sleep(waiting.clone()), (retry::pause(attempt, FAN_OUT, 1.0), all(1)));
        waiting.attempt(Ask::All);
    }
}

#[test]
fn contenders_that_split_the_masters_come_back_one_after_the_other_at_the_meeting_point() {
    for (random, fan_outs) in [(0.0, 1), (0.5, 2), (1.0, 3)] {
        let mut waiting = World::after(&[JOIN]).waiting;
        let step = waiting.lost(Refusal::Split, Instant::ORIGIN, FAN_OUT, random);
        assert_eq!(step, Step::Wait);
        assert_eq!(sleep(waiting), (FAN_OUT * fan_outs, first(1)));
    }
}

/// A refused caller asks the meeting point first; that is so for a second, for each caller.
#[test]
fn a_key_counts_as_contended_for_a_second_after_others_were_seen() {
    for (refusal, is_contended) in
        [(Refusal::Held, true), (Refusal::Split, true), (Refusal::Silent, false)]
    {
        let waiting = World::after(&[JOIN, Event::Lost(refusal), Event::LeaveFirst]).waiting;
        for (millis, contends) in [(0, is_contended), (999, is_contended), (1_000, false)] {
            let mut waiting = waiting.clone();
            let now = Instant::ORIGIN.saturating_add(ms(millis));
            assert_eq!(waiting.is_over(now), !contends, "{refusal:?} {millis}");
            let wanted = if contends { first(9) } else { all(9) };
            assert_eq!(next_join(&mut waiting, false, now), wanted, "{refusal:?} {millis}");
        }
        let until = waiting.contended_until();
        assert_eq!(until, is_contended.then(|| Instant::ORIGIN.saturating_add(ms(1_000))));
    }
}

#[test]
fn a_refusal_by_a_caller_of_this_process_is_no_contention() {
    let mut world = World::after(&[JOIN, Event::LostHere]);
    assert!(matches!(world.waiting.head, Head::AwaitingRelease { .. }));
    assert_eq!(world.waiting.contended_until(), None);
    world.happen(Event::Released);
    assert_eq!(world.attempting, Some(1));
}

#[test]
fn behind_a_holder_of_this_process_the_head_looks_once_a_second() {
    for waiting in [
        World::after(&[JOIN_BEHIND_HOLDER]).waiting,
        World::after(&[JOIN, Event::LostHere]).waiting,
        World::after(&[JOIN, JOIN, Event::Won]).waiting,
    ] {
        assert_eq!(sleep(waiting), (ms(1_000), Step::Look));
    }
}

#[test]
fn the_next_in_this_process_asks_right_behind_a_release() {
    for (before, wanted) in [(&[][..], all(2)), (&[REFUSED, FREE], first(2))] {
        let mut world = World::after(&[JOIN]);
        before.iter().chain(&[Event::Won, JOIN_BEHIND_HOLDER]).for_each(|it| world.happen(*it));
        assert_eq!(world.waiting.released(world.now, 0.5), wanted);
    }
}

/// It looked, because the holder was slow, and found that nobody else wants the key.
#[test]
fn a_head_that_watches_a_holder_of_this_process_asks_behind_its_release() {
    let mut world = World::after(&[JOIN_BEHIND_HOLDER, Event::Due, HELD]);
    let mut contended = World::after(&[JOIN, REFUSED, HELD]);
    assert_eq!(world.waiting.released(world.now, 0.5), all(1));
    let before = contended.waiting.clone();
    contended.happen(Event::Released);
    assert_eq!(contended.waiting, before, "the push of the release wakes it like the others");
}

#[test]
fn a_caller_that_lost_an_attempt_of_its_own_is_head_or_stands_behind_the_others() {
    let mut waiting = Waiting::new();
    assert!(waiting.join_attempting(1), "it goes on from its attempt");
    assert_eq!(waiting.clone().join(2, false, Instant::ORIGIN), Step::Wait, "one head");
    assert_eq!(waiting.lost(Refusal::Held, Instant::ORIGIN, FAN_OUT, 0.5), Step::Look);
    waiting.look_sent(Some(0), Instant::ORIGIN, FAN_OUT, 0.5);
    assert!(!waiting.join_attempting(2));
    assert_eq!(waiting.callers().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(waiting.leave(1, Instant::ORIGIN), Step::Wait);
    assert_eq!(waiting.looked(0, &Verdict::Free, Instant::ORIGIN, FAN_OUT, 0.5), first(2));
}

#[test]
fn the_turn_of_a_caller_that_leaves_in_its_attempt_goes_to_the_next_which_begins_anew() {
    let mut world = World::after(&[JOIN, JOIN, JOIN]);
    assert_eq!(world.waiting.leave(1, world.now), all(2));
    world = World::after(&[JOIN, REFUSED, FREE, JOIN]);
    assert_eq!(world.waiting.leave(1, world.now), first(2), "the key is contended");
}

/// The queue of two callers is empty whenever one of them holds the key.
#[test]
fn how_long_this_process_has_kept_the_key_is_remembered_while_callers_take_turns() {
    let world = World::after(&[JOIN_BEHIND_HOLDER, Event::Released, Event::Won]);
    assert!(world.waiting.head().is_none());
    assert!(!world.waiting.is_over(world.now));
    assert!(world.waiting.is_over(world.now.saturating_add(CONTENDED)));
}

#[test]
fn nothing_is_remembered_when_nobody_waits_and_the_contention_is_over() {
    let world = World::after(&[JOIN, REFUSED, Event::LeaveFirst]);
    assert!(!world.waiting.is_over(world.now));
    assert!(world.waiting.is_over(world.now.saturating_add(CONTENDED)));
    assert!(!looking().is_over(world.now.saturating_add(CONTENDED)), "a caller waits");
}

/// A caller that gets the key and gives it back at this instant, with another behind it.
fn pass_on(waiting: &mut Waiting<u32>, now: Instant) -> Step<u32> {
    let next = waiting.callers().max().map_or(1, |last| last + 1);
    waiting.join(next, false, now);
    waiting.attempt(Ask::All);
    assert_eq!(waiting.won(now), Step::Wait);
    waiting.released(now, 0.5)
}

#[test]
fn the_callers_of_a_process_leave_the_key_to_others_after_31_times_or_100_ms() {
    let queue = || World::after(&[JOIN, JOIN]).waiting;
    let mut often = queue();
    for times in 0..RUN_MAX {
        let step = pass_on(&mut often, Instant::ORIGIN);
        assert!(matches!(step, Step::Attempt(..)), "{times}: {step:?}");
    }
    assert_eq!(pass_on(&mut often, Instant::ORIGIN), Step::Look);
    assert!(matches!(pass_on(&mut often, Instant::ORIGIN), Step::Attempt(..)), "another run");
    for (millis, is_over) in [(99, false), (100, true)] {
        let mut long = queue();
        pass_on(&mut long, Instant::ORIGIN);
        let step = pass_on(&mut long, Instant::ORIGIN.saturating_add(ms(millis)));
        assert_eq!(step == Step::Look, is_over, "{millis} ms: {step:?}");
    }
}

#[test]
fn where_others_are_known_to_want_the_key_they_get_time_for_it() {
    let mut waiting = World::after(&[JOIN, JOIN, REFUSED]).waiting;
    for _ in 0..RUN_MAX {
        assert!(matches!(pass_on(&mut waiting, Instant::ORIGIN), Step::Attempt(..)));
    }
    assert_eq!(pass_on(&mut waiting, Instant::ORIGIN), Step::Wait);
    assert_eq!(sleep(waiting), (ms(20), Step::Look));
}
