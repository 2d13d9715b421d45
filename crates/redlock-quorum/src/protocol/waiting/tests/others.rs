//! What others get, and what is forgotten with a key that was won or lost.

use super::*;

#[test]
fn a_caller_that_comes_when_it_is_the_turn_of_others_rests_longer_where_such_are_known() {
    let alone = Waiting::new();
    let contended = World::after(&[JOIN, REFUSED, Event::LeaveFirst]).waiting;
    for (mut waiting, longest) in [(alone, ms(20)), (contended, ms(40))] {
        assert_eq!(waiting.join_late(9, Instant::ORIGIN, 1.0), Step::Wait);
        assert_eq!(sleep(waiting), (longest, Step::Look));
    }
    let mut behind = World::after(&[JOIN]).waiting;
    assert_eq!(behind.join_late(9, Instant::ORIGIN, 1.0), Step::Wait);
    assert_eq!(behind.head, Head::Attempting, "the head goes on");
}

#[test]
fn a_refusal_ends_the_run_of_this_process() {
    let mut waiting = World::after(&[JOIN, JOIN]).waiting;
    for _ in 0..RUN_MAX {
        assert!(matches!(pass_on(&mut waiting, Instant::ORIGIN), Step::Attempt(..)));
    }
    waiting.lost(Refusal::Held, Instant::ORIGIN, FAN_OUT, 0.5);
    assert!(matches!(pass_on(&mut waiting, Instant::ORIGIN), Step::Attempt(..)), "another run");
}

#[test]
fn with_a_key_that_is_won_useless_pushes_are_forgotten() {
    let mut world = World::after(&[JOIN, JOIN, REFUSED, Event::Answer(0, Said::HeldForGood)]);
    while !world.waiting.pushes.are_useless() {
        for event in [Event::Pushed(0), REFUSED, Event::Due, Event::Answer(0, Said::HeldForGood)] {
            world.happen(event);
        }
    }
    world.waiting.attempt(Ask::All);
    world.waiting.won(world.now);
    assert!(!world.waiting.pushes.are_useless());
}
