//! Connections: when they are reported, and which server answers.

use std::sync::{Arc, Mutex};

use redlock_core::{
    Answer, Cause, Events, Instant, Node, NodeEvent, Op, Role, Sink, Verdict, Vote, VoteSlot,
};

use crate::{KEY, Seen, acquire, down, lost, ms, one};

#[tokio::test(start_paused = true)]
async fn driven_node_reports_connections_until_its_future_is_dropped() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    *seen.watched.lock().unwrap() = Some(node.clone());
    let driving = seen.drive(&node);
    seen.up();
    node.partition();
    node.heal();
    node.step_clock(1);
    let events = seen.events();
    assert!(matches!(events[..], [NodeEvent::Down { .. }, NodeEvent::Up(_)]), "{events:?}");

    node.delay(ms(50)..=ms(50), ms(0)..=ms(0));
    seen.submit(&node, 0, acquire(1_000));
    drop(driving);
    assert_eq!(seen.answers(), [lost()], "no request is left without an answer");
    let events = seen.events();
    assert!(matches!(events[..], [NodeEvent::Down { retries_now: false, .. }]), "{events:?}");
    node.partition();
    assert_eq!(seen.events(), []);
}

#[test]
fn connection_is_reported_by_drive_and_by_later_polls() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    let driving = seen.drive(&node);
    seen.up();
    std::thread::spawn(move || drop(driving)).join().unwrap();
    assert_eq!(seen.events().len(), 1);
    node.partition();
    let _driving = seen.drive(&node);
    assert_eq!(seen.events(), [down(Cause::ConnectionClosed, false)]);
}

#[test]
fn votes_precede_the_report_that_their_connection_ended() {
    #[derive(Default)]
    struct Order(Mutex<Vec<&'static str>>);
    impl Sink for Order {
        fn vote(&self, _: Vote) {
            self.0.lock().unwrap().push("vote");
        }
        fn event(&self, _: usize, event: NodeEvent) {
            let word = if matches!(event, NodeEvent::Up(_)) { "up" } else { "down" };
            self.0.lock().unwrap().push(word);
        }
    }
    let (node, order) = (one(0), Arc::<Order>::default());
    let _driving = node.clone().drive(Events::new(order.clone(), 0));
    node.hold();
    node.submit(acquire(1_000), VoteSlot::new(order.clone(), 0, 0, Instant::ORIGIN));
    node.crash_and_restart(true);
    assert_eq!(*order.0.lock().unwrap(), ["up", "vote", "down", "up"]);
}

#[test]
fn demoted_server_reports_it_and_refuses_writes() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    let _driving = seen.drive(&node);
    let before = seen.up();
    node.set_role(Role::Replica);
    let after = seen.last_up();
    assert_eq!((after.role, after.identity), (Role::Replica, before.identity));
    seen.submit(&node, 0, acquire(1_000));
    seen.submit(&node, 1, Op::inspect(KEY));
    let answers = seen.answers();
    assert!(matches!(answers[0].verdict, Verdict::Unknown(Cause::Demoted(_))), "{answers:?}");
    assert_eq!(answers[1], Answer::new(Verdict::Free));
    node.set_role(Role::Master);
    let again = seen.last_up();
    assert_eq!((again.role, &again.run_id), (Role::Master, &before.run_id));
    assert_ne!(again.identity, before.identity, "its data has another history");
}

#[test]
fn two_addresses_of_one_master_have_one_identity() {
    let (node, seen) = (one(0), Arc::<Seen>::default());
    let twin = node.alias("twin:6379");
    assert_eq!(twin.name(), "twin:6379");
    let _driving = [seen.drive(&node), seen.drive(&twin)];
    let identities = seen.events().into_iter().map(|event| match event {
        NodeEvent::Up(facts) => facts.identity,
        event => panic!("{event:?}"),
    });
    let identities: Vec<_> = identities.collect();
    assert!(identities[0].is_some() && identities[0] == identities[1], "{identities:?}");
    seen.submit(&node, 0, acquire(60_000));
    assert_eq!(twin.keys(), 1);
}
