//! The small bounds hold, and every mutant is found.

use model::admission::Broken;

/// A story that people read to its end.
const STORY_LINES: usize = 25;

#[test]
fn the_small_bounds_hold() {
    for part in model::admission::small() {
        let outcome = model::admission::check(&part);
        println!("{}: {} states, depth {}", part.name, outcome.states, outcome.depth);
        assert_eq!(outcome.story, None, "{}", part.name);
        assert!(outcome.states > 1000, "{} explores nothing", part.name);
    }
}

#[test]
fn every_mutant_is_found() {
    for broken in Broken::ALL {
        let outcome = model::admission::check(&model::admission::named(broken));
        let Some((property, story)) = outcome.story else {
            panic!("{broken:?} is not found in {} states", outcome.states)
        };
        println!("{broken:?}: not true that {property}");
        for line in &story {
            println!("    {line}");
        }
        assert!(story.len() <= STORY_LINES, "{broken:?} takes {} lines", story.len());
    }
}
