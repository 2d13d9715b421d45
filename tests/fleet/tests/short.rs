//! Short runs of the fleet: the client that ships keeps its promises, and each broken client is
//! caught.

#![allow(clippy::unwrap_used, reason = "a test says so what it expects")]

use fleet::{Flaw, Found, Story, Violation};

/// Plays the stories of these seeds, and returns how many leases and faults they had.
fn play(seeds: impl IntoIterator<Item = u64>) -> (u64, u64) {
    let mut sum = (0, 0);
    for seed in seeds {
        let story = Story::of(seed);
        let outcome = story.play();
        if let Some(violation) = outcome.violation {
            let (story, violation) = story.shrink(violation, Story::play);
            panic!("{}", Found { story, violation });
        }
        sum = (sum.0 + outcome.leases, sum.1 + outcome.faults);
    }
    sum
}

#[test]
fn fleets_keep_every_promise() {
    let (leases, faults) = play(0..60);
    assert!(leases > 10_000 && faults > 200, "{leases} leases and {faults} faults prove nothing");
}

#[test]
fn story_is_reproducible() {
    for seed in 0..4 {
        let (one, other) = (Story::of(seed).play(), Story::of(seed).play());
        assert_eq!((one.leases, one.faults), (other.leases, other.faults), "seed {seed}");
    }
}

/// Returns `true` if this is how a client with this flaw fails.
fn shows(flaw: Flaw, violation: &Violation) -> bool {
    match violation {
        Violation::Tokens(_) => flaw.is_of_tokens(),
        Violation::Exclusion(_) => !flaw.is_of_tokens(),
        Violation::Residue(_) => flaw == Flaw::ReusesItsToken,
        _ => false,
    }
}

#[test]
fn every_broken_client_is_caught() {
    for flaw in Flaw::ALL {
        let mut violations =
            (0..100).filter_map(|seed| Story::for_flaw(flaw, seed).play_broken(flaw).violation);
        assert!(violations.any(|violation| shows(flaw, &violation)), "{flaw:?} was not caught");
    }
}

/// What a client has learned about a slow network ends with it: repeated requests once kept its
/// pauses long, and the others passed it all the time.
#[test]
fn formerly_slow_client_is_served_like_the_others() {
    for seed in 70..80 {
        let story = Story::for_flaw(Flaw::ValidityFromReplies, seed);
        assert_eq!(story.play().violation, None, "seed {seed}");
    }
}

/// The stories for flaws break no promise without a flaw.
#[test]
fn stories_for_broken_clients_are_kept_by_the_client_that_ships() {
    for seed in 0..20 {
        for flaw in [Flaw::HalfIsEnough, Flaw::Maximum] {
            let story = Story::for_flaw(flaw, seed);
            assert_eq!(story.play().violation, None, "seed {seed}");
        }
    }
}

#[test]
fn failing_stories_shrink_to_a_few_faults() {
    let flaw = Flaw::CountsUnknown;
    let play = |story: &Story| story.play_broken(flaw);
    let failing = (0..400).map(|seed| Story::for_flaw(flaw, seed));
    let failing = failing.filter_map(|story| Some((story.clone(), play(&story).violation?)));
    for (story, violation) in failing.take(5) {
        let (short, violation) = story.shrink(violation, play);
        assert!(short.len() <= 5, "{}", Found { story: short, violation });
    }
}
