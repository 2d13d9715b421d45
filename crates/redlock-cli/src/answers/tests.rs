//! The answers of masters as texts.

use super::*;

#[test]
fn equal_answers_are_shown_once() {
    let line = |said: [&str; 5]| {
        let nodes = ["a", "b", "c", "d", "e"].into_iter().zip(said);
        said_once(nodes.map(|(node, words)| (node, words.into())).collect())
    };
    assert_eq!(line(["timed out"; 5]), "5 masters: timed out");
    let some = said_of_some(vec![("a", "timed out".into()), ("b", "timed out".into())]);
    assert_eq!(some, "2 masters (a, b): timed out");
    assert_eq!(
        line(["granted", "timed out", "granted", "free", "granted"]),
        "3 masters (a, c, e): granted, b timed out, d free"
    );
}

#[test]
fn keys_of_non_voting_masters_are_distinguished() {
    let early = Cause::NotAdmitted(NotAdmitted::new(WhyNot::Restarted).into());
    for (said, counted) in [
        (Verdict::Granted, true),
        (Verdict::Unknown(Cause::TimedOut), true),
        (Verdict::Unknown(early), false),
        (Verdict::BallotRefused, false),
    ] {
        assert_eq!(did_not_count(&said).is_none(), counted, "{said}");
    }
}

#[test]
fn token_on_a_majority_lasts_while_a_majority_has_it() {
    let ms = |ms| Some(Duration::from_millis(ms));
    let keys = vec![("a", ms(90)), ("b", ms(70)), ("a", ms(50)), ("a", None)];
    assert_eq!(on_majority(keys.clone(), 4), Some(("a", ms(50))));
    assert_eq!(on_majority(keys.clone(), 3), Some(("a", ms(90))));
    assert_eq!(on_majority(keys, 7), None, "three of seven are not a majority");
    assert_eq!(on_majority(vec![("a", None), ("a", None)], 3), Some(("a", None)));
}
