//! The reported time until a master in quarantine votes again.

use super::*;

/// Returns whether the first master is admitted at `later` by a client that stayed, or by a new
/// client.
fn is_admitted_at(later: Millis, masters: &[Master], stays: &Admission) -> bool {
    let (mut masters, mut stays) = (masters.to_vec(), stays.clone());
    settle(&mut stays, &mut masters, later);
    settle(&mut client(&masters, later), &mut masters, later);
    masters[0].data.record.admits(masters[0].identity)
}

/// Returns how long it takes at the latest if clients come and go.
fn by_visits(client: &Admission, now: Millis) -> Option<Duration> {
    not_admitted(client, 0, now).by_visits
}

/// The first one comes late: nothing is known of the time before it.
#[test]
fn short_lived_clients_end_a_quarantine_at_the_reported_time() {
    for first in [0, 700] {
        let mut masters = three();
        (masters[1].ahead, masters[2].ahead) = (5 * LENGTH, 300);
        masters[0].restart(11);
        let said = by_visits(&client(&masters, first), first).unwrap();
        let over = first + u64::try_from(said.as_millis()).unwrap();
        for now in (first..over).step_by(50).chain([over - 1]) {
            let mut visitor = client(&masters, now);
            let left = by_visits(&visitor, now);
            assert_eq!(left, Some(Duration::from_millis(over - now)), "at {now}");
            settle(&mut visitor, &mut masters, now);
            assert!(!masters[0].data.record.admits(masters[0].identity), "at {now}");
        }
        settle(&mut client(&masters, over), &mut masters, over);
        assert!(masters[0].data.record.admits(masters[0].identity));
    }
}

/// Clients that came a while after the quarantine had begun found no master that votes, and noted
/// nothing. A note ahead of its clock counts for nothing, and is written again.
#[test]
fn reported_time_is_two_lengths_without_a_valid_note() {
    let mut masters = three();
    (masters[1].up, masters[2].up) = (false, false);
    masters[0].restart(11);
    let mut stays = client(&[masters[0].clone(), Master::admitted(20), Master::admitted(30)], 0);
    stays.on(1, Event::Down, 0);
    stays.on(2, Event::Down, 0);
    assert_eq!(by_visits(&stays, 0), None, "only a client that stays ends it");
    masters[1].up = true;
    assert_eq!(by_visits(&client(&masters, 50), 50), Some(2 * Duration::from_millis(LENGTH)));
    masters[1].ahead = LENGTH;
    settle(&mut client(&masters, 100), &mut masters, 100);
    assert_eq!(
        by_visits(&client(&masters, 200), 200),
        Some(Duration::from_millis(2 * LENGTH - 100))
    );
    masters[1].ahead = 0;
    assert_eq!(by_visits(&client(&masters, 300), 300), Some(2 * Duration::from_millis(LENGTH)));
}

#[test]
fn new_masters_report_no_time_for_short_lived_clients() {
    let mut masters: Vec<_> = [10, 20, 30].map(Master::fresh).to_vec();
    let mut admission = client(&masters, 0);
    let said = |admission: &Admission| {
        let said = not_admitted(admission, 0, 0);
        (said.votes_again, said.by_visits)
    };
    assert_eq!(said(&admission), (Some(Duration::from_millis(LENGTH)), None));
    settle(&mut admission, &mut masters, 0);
    assert_eq!(said(&admission), (Some(Duration::from_millis(LENGTH)), None));
}

/// Each client is short-lived. A client that only reads, and has queried no master for TIME,
/// reports the same.
#[test]
fn reported_time_decreases_with_each_visit_and_is_never_early() {
    let mut masters = three();
    (masters[1].ahead, masters[2].ahead) = (5 * LENGTH, 300);
    masters[0].restart(11);
    for now in (0..2 * LENGTH).step_by(100) {
        let mut visitor = client(&masters, now);
        let left = |visitor: &Admission| not_admitted(visitor, 0, now).votes_again.unwrap();
        let (read_only, visits) = (left(&visitor), by_visits(&visitor, now));
        assert_eq!(visits, Some(Duration::from_millis(2 * LENGTH - now)), "at {now}");
        settle(&mut visitor, &mut masters, now);
        assert_eq!((left(&visitor), by_visits(&visitor, now)), (read_only, visits), "at {now}");
        assert_eq!(read_only, Duration::from_millis(LENGTH.min(2 * LENGTH - now)), "at {now}");
        let later = not_admitted(&visitor, 0, now + 30).votes_again.unwrap();
        assert_eq!(later, read_only - Duration::from_millis(30), "at {now}");
        let over = now + u64::try_from(read_only.as_millis()).unwrap();
        assert!(!is_admitted_at(over - 1, &masters, &visitor), "at {now}");
        assert!(is_admitted_at(over, &masters, &visitor), "at {now}");
    }
}

/// A quarantine does not end by the note of a process that does not answer.
#[test]
fn notes_of_non_voting_masters_do_not_shorten_the_reported_time() {
    let mut masters = three();
    masters[0].restart(11);
    settle(&mut client(&masters, 0), &mut masters, 0);
    let now = 2 * LENGTH - 100;
    let left = |masters: &[Master]| not_admitted(&client(masters, now), 0, now).votes_again;
    assert_eq!(left(&masters), Some(Duration::from_millis(100)));
    masters[1].up = false;
    masters[2].data = Data::default();
    assert_eq!(left(&masters), Some(Duration::from_millis(LENGTH)), "the same process, emptied");
    masters[2] = Master::admitted(31);
    assert_eq!(left(&masters), Some(Duration::from_millis(LENGTH)), "another process");
}
