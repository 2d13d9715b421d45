//! Tests of heads without a queue: who requests a free key first.

use super::*;

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

#[test]
fn without_a_queue_a_changed_key_is_watched_a_moment_later() {
    let mut waiting = unqueued();
    assert_eq!(waiting.changed(0, start(1.0)), Step::Wait);
    assert_eq!(sleep(waiting.clone()), (ms(5), Step::Watch), "it was watched just now");
    waiting.watched_at = Instant::ORIGIN.saturating_sub(ms(5));
    waiting.watch_sent(Some(0), moment(Instant::ORIGIN.saturating_add(ms(100)), 0.5));
    let later = moment(Instant::ORIGIN.saturating_add(ms(200)), 1.0);
    assert_eq!(waiting.changed(0, later), Step::Wait);
    assert_eq!(waiting.due(), Some(later.now.saturating_add(FAN_OUT * 2)));
}

#[test]
fn without_a_queue_a_caller_with_slow_votes_watches_in_time() {
    let mut waiting = unqueued();
    let slow = Moment { fan_out: ms(70), ..start(0.5) };
    assert_eq!(waiting.changed(0, slow), Step::Wait);
    assert_eq!(sleep(waiting), (ms(5), Step::Watch));
}

/// A head that finds the key free after this time, for the time number `tries`.
fn finds_free(tries: u32, waits: Duration) -> Waiting<u32> {
    let mut waiting = unqueued();
    waiting.tries = tries - 1;
    waiting.waits_since = Instant::ORIGIN;
    let now = Instant::ORIGIN.saturating_add(waits);
    waiting.watch_sent(Some(0), moment(now, 0.5));
    assert_eq!(waiting.watch_answered(0, &Verdict::Free, moment(now, 1.0)), Step::Wait);
    waiting
}

#[test]
fn without_a_queue_the_longest_waiter_tries_a_free_key_first() {
    let pause = |tries, waits| {
        let waiting = finds_free(tries, waits);
        waiting.due().unwrap().saturating_since(Instant::ORIGIN.saturating_add(waits))
    };
    for tries in 1..12 {
        assert_eq!(pause(tries, ms(10)), ms(40).min(FAN_OUT * 2 * (1 << tries)), "{tries}");
    }
    let waits = [25, 50, 100, 200, 400, 1_000, 9_000].map(ms);
    let pauses = waits.map(|waits| pause(12, waits));
    assert_eq!(pauses, [40_000, 20_000, 10_000, 5_000, 2_500, 1_000, 1_000].map(micros));
    let mut waiting = finds_free(12, ms(25));
    assert_eq!(waiting.tick(waiting.due().unwrap()), first(1));
}

#[test]
fn without_a_queue_who_is_overtaken_watches_the_key_again() {
    let mut waiting = finds_free(12, ms(100));
    let overtaken = moment(Instant::ORIGIN.saturating_add(ms(106)), 0.5);
    assert_eq!(waiting.changed(0, overtaken), Step::Wait);
    assert_eq!(waiting.tick(waiting.due().unwrap()), Step::Watch);
    assert_eq!(waiting.tries, 12, "it has lost no more than a chance");
}

#[test]
fn without_a_queue_callers_standing_back_watch_before_attempts() {
    for (pause, tries) in [(ms(40), 7), (FAN_OUT * 4, 1)] {
        let mut waiting = World::after(&[JOIN, JOIN, Event::Won]).waiting;
        let step = waiting.stand_back_unqueued(pause, FAN_OUT, Instant::ORIGIN);
        assert_eq!(step, Step::Wait);
        assert_eq!(waiting.released(Instant::ORIGIN), Step::Wait);
        assert_eq!((sleep(waiting.clone()), waiting.tries), ((pause, Step::Watch), tries));
    }
}

#[test]
fn a_head_whose_queue_fails_asks_again_at_once_without_it() {
    let mut waiting = World::after(&[JOIN, REFUSED]).waiting;
    let failed = Some(Place::Failed.answered(0));
    assert_eq!(waiting.lost(Refusal::Held, failed, start(0.5)), first(1));
    assert_eq!(waiting.place(), None);
}
