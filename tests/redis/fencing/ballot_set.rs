//! The ballot set of a master is deleted, incomplete, or no set.

use std::time::Instant;

use redlock_core::{Cause, Member, Verdict, WhyNot};
use redlock_quorum::{Redlock, Standing};
use redlock_testkit::{RedisServer, RedisServers};
use tokio::time::sleep;

use super::{KEY, LENGTH, Tape, complete, newcomer, sets, until};
use crate::admission::{AGAIN, admitted, run};
use crate::lab::{PATIENCE, eventually, in_time, ms, said, secs, text};

/// Returns the first master's answer to a lock for which it does not vote. It grants the key, and
/// the client then queries why it has not accepted the ballot.
async fn vote(redlock: &Redlock, servers: &RedisServers, tape: &Tape) -> Verdict {
    let begun = Instant::now();
    loop {
        let guard = tape.lock(redlock).await.unwrap();
        in_time(guard.settled()).await;
        let vote = || said(&guard.votes(), &servers[0].name()).clone();
        eventually("it says why", || matches!(vote(), Verdict::Unknown(_))).await;
        let vote = vote();
        in_time(guard.release()).await.unwrap();
        // A late answer shows nothing.
        if !matches!(vote, Verdict::Unknown(Cause::TimedOut)) || begun.elapsed() > PATIENCE {
            return vote;
        }
    }
}

/// The next lock notices the damage to its ballots, and a quarantine repairs it.
async fn comes_back(hurt: impl FnOnce(&RedisServer, &str)) {
    let ((servers, redlock), tape) = (admitted(3).await, Tape::default());
    tape.visit(&redlock).await;
    let set = complete(&servers[0]);
    let begun = Instant::now();
    hurt(&servers[0], &set);
    let vote = vote(&redlock, &servers, &tape).await;
    let Verdict::Unknown(Cause::NotAdmitted(why)) = &vote else { panic!("{vote}") };
    // Once its quarantine has begun, it is like any other that has lost something.
    assert!(matches!(why.why, WhyNot::Incomplete | WhyNot::Restarted), "{vote}");
    until(&redlock, 0, Standing::Admitted).await;
    assert!(begun.elapsed() >= LENGTH, "{:?}", begun.elapsed());
    assert_eq!(complete(&servers[0]), set);
    let guard = tape.lock(&redlock).await.unwrap();
    eventually("it votes", || guard.copies() == 3).await;
    guard.release().await.unwrap();
    servers[1].kill();
    tape.visit(&newcomer(&servers)).await;
}

#[tokio::test]
async fn master_with_deleted_ballots_votes_after_a_quarantine() {
    comes_back(|server, set| run(server, &["DEL", set])).await;
}

#[tokio::test]
async fn master_without_a_locks_member_votes_after_a_quarantine() {
    let member = Member::of(KEY.as_bytes()).number().to_string();
    comes_back(|server, set| run(server, &["ZREM", set, &member])).await;
}

/// The key may be intended, so nothing is written until an operator has removed it.
#[tokio::test]
async fn wrong_type_ballot_key_blocks_votes_until_removed() {
    let ((servers, redlock), tape) = (admitted(3).await, Tape::default());
    tape.visit(&redlock).await;
    let set = complete(&servers[0]);
    run(&servers[0], &["SET", &set, "a stranger's"]);
    let newcomer = newcomer(&servers);
    for redlock in [&redlock, &newcomer] {
        let vote = vote(redlock, &servers, &tape).await;
        assert!(matches!(vote, Verdict::Unknown(Cause::NotAdmitted(_))), "{vote}");
        names_the_key(redlock, &set).await;
    }
    assert_eq!(text::<String>(&servers[0], &["GET", &set]), "a stranger's");
    run(&servers[0], &["DEL", &set]);
    until(&newcomer, 0, Standing::Admitted).await;
    complete(&servers[0]);
    let guard = tape.lock(&newcomer).await.unwrap();
    eventually("it votes", || guard.copies() == 3).await;
    guard.release().await.unwrap();
}

/// The first step towards its admission was refused, and the report says why.
async fn names_the_key(redlock: &Redlock, set: &str) {
    let deadline = Instant::now() + secs(10);
    let expected = format!(
        "lost its fencing data, its quarantine has not started; votes again in 4.4 s if a client \
         stays connected; WRONGTYPE the key {set} is of another type"
    );
    loop {
        let cause = redlock.inspect().await.remove(0).cause.map(|cause| cause.to_string());
        if cause.as_deref().is_some_and(|cause| cause.ends_with(&expected)) {
            return;
        }
        assert!(Instant::now() < deadline, "{cause:?}");
        sleep(ms(5)).await;
    }
}

/// Waiting does not help, so the wait ends immediately, and the error names the keys.
#[tokio::test]
async fn majority_with_wrong_type_ballot_keys_is_not_awaited() {
    let (servers, redlock) = admitted(3).await;
    in_time(redlock.try_lock(KEY).await.unwrap().release()).await.unwrap();
    for server in &servers[..2] {
        run(server, &["SET", &complete(server), "a stranger's"]);
    }
    for redlock in [&redlock, &newcomer(&servers)] {
        let error = in_time(redlock.lock(KEY).wait_forever().into_future()).await.unwrap_err();
        assert_eq!(error.retry_after(), None, "{error}");
        for server in &servers[..2] {
            let named = format!("WRONGTYPE the key {} is of another type", sets(server)[0]);
            assert!(error.to_string().contains(&named), "{error}");
        }
    }
}

#[tokio::test]
async fn majority_without_ballots_needs_init_again() {
    let ((servers, redlock), tape) = (admitted(3).await, Tape::default());
    tape.visit(&redlock).await;
    for server in &servers[..2] {
        run(server, &["DEL", &complete(server)]);
    }
    let error = redlock.try_lock(KEY).await.unwrap_err().to_string();
    assert!(error.contains("lost its fencing data"), "{error}");
    assert!(servers[..2].iter().all(|server| sets(server).is_empty()));
    in_time(redlock.init_with(AGAIN)).await.unwrap();
    for at in 0..3 {
        until(&redlock, at, Standing::Admitted).await;
        complete(&servers[at]);
    }
    tape.visit(&redlock).await;
}
