//! Elections: one leader among candidates.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::ensure;
use futures::StreamExt;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_quorum::{
    AcquireError, Election, Hold, InvalidRequest, Leader, LostReason, RunError, State,
};
use redlock_testkit::{Nemesis, SimNodes};
use tokio::time::{sleep, timeout};

use crate::arena::{
    NODE_TIMEOUT, RESOURCE, TTL, ended, handle, masters, ms, partition, trusting_handle, until_free,
};
use crate::seeds;

fn candidate(masters: &SimNodes, text: &str) -> Election {
    handle(masters).build().unwrap().election(RESOURCE).candidate(text)
}

fn text(leader: &Leader) -> Option<&str> {
    match leader {
        Leader::Is { text, .. } => Some(text),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn any_client_can_read_who_leads_and_since_when() {
    let (masters, redlock) = masters(5);
    let (one, other) = (candidate(&masters, "10.0.0.7:8080"), redlock.election(RESOURCE));
    assert_eq!(other.leader().await, Leader::None);
    let before = SystemTime::now() - ms(1_000);
    let leadership = one.campaign().await.unwrap();
    let Leader::Is { text, token, since, .. } = other.leader().await else { panic!("it leads") };
    assert_eq!((text.as_str(), token.as_str()), ("10.0.0.7:8080", leadership.token().as_str()));
    assert!(since > before && since < before + ms(60_000), "{since:?}");
    leadership.resign().await.unwrap();
    assert_eq!(other.leader().await, Leader::None);
    let reservation = "redlock-quorum:next:00000000000000ff";
    masters.iter().for_each(|master| master.put(RESOURCE, reservation, 1_000));
    assert_eq!(redlock.status(RESOURCE).await.state, State::Reserved);
    assert_eq!(other.leader().await, Leader::None);
    partition(&masters[..3]);
    assert!(matches!(other.leader().await, Leader::Unknown(votes) if votes.len() == 5));
}

#[tokio::test(start_paused = true)]
async fn candidate_without_a_text_has_its_handles_label() {
    let (masters, _) = masters(3);
    let election = handle(&masters).label("web-1").build().unwrap().election(RESOURCE);
    let leadership = election.campaign().await.unwrap();
    assert_eq!(text(&election.leader().await), Some("web-1"));
    drop(leadership);
}

#[tokio::test(start_paused = true)]
async fn invalid_label_or_ended_wait_is_an_error() {
    let (masters, _) = masters(3);
    let refused = candidate(&masters, "a b").campaign().await.unwrap_err();
    assert!(matches!(refused, AcquireError::Invalid(InvalidRequest::Label(_))), "{refused}");
    let leadership = candidate(&masters, "a").campaign().await.unwrap();
    let refused = candidate(&masters, "b").wait(ms(100)).campaign().await.unwrap_err();
    assert!(matches!(refused, AcquireError::Held { .. }), "{refused}");
    leadership.resign().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_campaign_outlasts_masters_that_do_not_answer() {
    let (masters, _) = masters(5);
    let client = masters.another_client();
    partition(&client[..3]);
    let campaign = candidate(&client, "a").campaign();
    let healed = async {
        sleep(ms(60_000)).await;
        crate::arena::heal(&client[..3]);
    };
    let (leadership, ()) = tokio::join!(campaign, healed);
    assert!(leadership.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn finished_work_resigns_and_lost_leadership_restarts_it() {
    let (masters, _) = masters(5);
    let election = candidate(&masters, "a").ttl(TTL);
    assert_eq!(election.clone().run(|_| async { 7 }).await.unwrap(), 7);
    until_free(&masters, NODE_TIMEOUT).await;

    let holds = Arc::new(Mutex::new(Vec::<Hold>::new()));
    let seen = holds.clone();
    let mut terms = 0;
    let run = election.max_hold(TTL).run(move |hold| {
        terms += 1;
        seen.lock().unwrap().push(hold);
        async move { if terms == 3 { terms } else { std::future::pending().await } }
    });
    assert_eq!(timeout(TTL * 20, run).await.expect("it is dropped in time").unwrap(), 3);
    let holds = holds.lock().unwrap();
    assert_eq!(holds.len(), 3);
    assert!(holds.windows(2).all(|two| two[0].fencing_token() < two[1].fencing_token()));
    assert_eq!(holds[0].check().unwrap_err().reason, LostReason::MaxHold);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_run() {
    let (masters, _) = masters(3);
    let redlock = handle(&masters).build().unwrap();
    let run = redlock.election(RESOURCE).run(|_| std::future::pending::<()>());
    let close = async {
        sleep(TTL).await;
        redlock.clone().shutdown(ms(100)).await
    };
    let (outcome, _) = tokio::join!(timeout(TTL * 3, run), close);
    let error = outcome.expect("it ends").unwrap_err();
    assert!(matches!(error, RunError::Acquire(AcquireError::Shutdown)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn observers_get_each_leader_once_and_not_the_time_in_between() {
    let (masters, redlock) = masters(5);
    let mut leaders = redlock.election(RESOURCE).observe();
    assert_eq!(leaders.next().await, Some(Leader::None));
    for name in ["a", "b"] {
        let leadership = candidate(&masters, name).campaign().await.unwrap();
        let leader = timeout(ms(200), leaders.next()).await.expect("a push").unwrap();
        assert_eq!(text(&leader), Some(name));
        assert!(timeout(TTL * 3, leaders.next()).await.is_err(), "extensions are not a change");
        leadership.resign().await.unwrap();
        // It was extended a moment ago.
        assert_eq!(timeout(ms(1_100), leaders.next()).await.expect("a read"), Some(Leader::None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_followed_after_its_key_has_expired() {
    let (masters, _) = masters(5);
    let first = masters.another_client();
    let leadership = candidate(&first, "a").campaign().await.unwrap();
    let next = tokio::spawn(candidate(&masters, "b").campaign());
    sleep(ms(100)).await;
    partition(&first);
    let cut_off = masters.clock().now();
    let next = next.await.unwrap().unwrap();
    let waited = masters.clock().now().saturating_since(cut_off);
    assert!(waited <= TTL.mul_f64(1.1) + ms(1_000), "{waited:?}");
    assert!(!leadership.is_held() && next.is_held());
    ended(&leadership).await;
}

/// Candidates lead again and again next to a nemesis, and a judge looks every millisecond. Returns
/// how many leaderships there were.
async fn campaign(seed: u64) -> anyhow::Result<usize> {
    const LENGTH: Duration = ms(20_000);
    let masters = SimNodes::new(5, seed);
    let clients: Vec<_> = (0..4).map(|_| masters.another_client()).collect();
    let holds = Arc::new(Mutex::new(Vec::<Hold>::new()));
    let candidates = clients.iter().enumerate().map(|(number, client)| {
        let redlock = trusting_handle(client).seed(seed * 10 + number as u64).build().unwrap();
        let election = redlock.election(RESOURCE).candidate(format!("c{number}"));
        let (holds, mut rng) = (holds.clone(), StdRng::seed_from_u64(seed * 100 + number as u64));
        async move {
            loop {
                let term = ms(rng.random_range(0..3_000));
                let run = election.clone().run(|hold| {
                    holds.lock().unwrap().push(hold);
                    sleep(term)
                });
                run.await.ok();
                sleep(ms(rng.random_range(0..500))).await;
            }
        }
    });
    let judge = async {
        while masters.clock().now().as_nanos() < LENGTH.as_nanos() as u64 {
            let leaders = holds.lock().unwrap().iter().filter(|hold| hold.is_held()).count();
            ensure!(leaders <= 1, "{leaders} leaders at {:?}", masters.clock().now());
            sleep(ms(1)).await;
        }
        Ok(())
    };
    let nemesis = Nemesis::new(seed).at_most(2).delay_max(NODE_TIMEOUT);
    tokio::select! {
        judged = async { tokio::join!(judge, nemesis.run(&clients, LENGTH)).0 } => judged?,
        _ = join_all(candidates) => {}
    }
    let terms = holds.lock().unwrap().len();
    Ok(terms)
}

#[test]
fn two_candidates_never_lead_at_the_same_time_by_their_clocks() {
    seeds::each(
        "two_candidates_never_lead_at_the_same_time_by_their_clocks",
        0..20,
        |seed| async move {
            let terms = campaign(seed).await?;
            ensure!(terms > 3, "{terms} leaderships");
            Ok(())
        },
    );
}
