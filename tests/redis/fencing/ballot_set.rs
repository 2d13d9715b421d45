//! The ballot set of a master is deleted, incomplete, or no set.

use std::time::Instant;

use redlock_core::{Cause, Member, Verdict, WhyNot};
use redlock_quorum::{Init, Redlock, Standing};
use redlock_testkit::{RedisServer, RedisServers};

use super::{KEY, LENGTH, Tape, complete, newcomer, sets, until};
use crate::admission::{admitted, run};
use crate::lab::{eventually, in_time, said, text};

const AGAIN: Init = Init { again: true, floor: None };

/// What the first master says to a lock that it does not count for. It grants the key, and is asked
/// then why it has not accepted the ballot.
async fn vote(redlock: &Redlock, servers: &RedisServers, tape: &Tape) -> Verdict {
    let guard = tape.lock(redlock).await.unwrap();
    in_time(guard.settled()).await;
    let vote = || said(&guard.votes(), &servers[0].name()).clone();
    eventually("it says why", || matches!(vote(), Verdict::Unknown(_))).await;
    assert_eq!(guard.copies(), 2, "{}", guard.votes());
    let vote = vote();
    in_time(guard.release()).await.unwrap();
    vote
}

/// What is done to its ballots is noticed by the next lock, and cured by a quarantine.
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
async fn a_master_whose_ballots_were_deleted_does_not_vote_until_its_quarantine_is_over() {
    comes_back(|server, set| run(server, &["DEL", set])).await;
}

#[tokio::test]
async fn a_master_without_the_member_of_a_lock_does_not_vote_until_its_quarantine_is_over() {
    let member = Member::of(KEY.as_bytes()).number().to_string();
    comes_back(|server, set| run(server, &["ZREM", set, &member])).await;
}

/// It may be meant so: nothing is written until a person has removed it.
#[tokio::test]
async fn a_master_whose_ballots_are_no_set_does_not_vote_until_a_person_removes_them() {
    let ((servers, redlock), tape) = (admitted(3).await, Tape::default());
    tape.visit(&redlock).await;
    let set = complete(&servers[0]);
    run(&servers[0], &["SET", &set, "a stranger's"]);
    let newcomer = newcomer(&servers);
    for redlock in [&redlock, &newcomer] {
        let vote = vote(redlock, &servers, &tape).await.to_string();
        assert!(vote.contains("WRONGTYPE"), "{vote}");
    }
    assert_eq!(text::<String>(&servers[0], &["GET", &set]), "a stranger's");
    run(&servers[0], &["DEL", &set]);
    // Its answer may come after those of the others. Until then it counts as admitted.
    let vote = vote(&newcomer, &servers, &tape).await;
    assert!(matches!(vote, Verdict::Unknown(Cause::NotAdmitted(_))), "{vote}");
    until(&newcomer, 0, Standing::Admitted).await;
    complete(&servers[0]);
    let guard = tape.lock(&newcomer).await.unwrap();
    eventually("it votes", || guard.copies() == 3).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_majority_without_ballots_is_no_quorum_until_a_person_says_that_it_may_be_one() {
    let ((servers, redlock), tape) = (admitted(3).await, Tape::default());
    tape.visit(&redlock).await;
    for server in &servers[..2] {
        run(server, &["DEL", &complete(server)]);
    }
    let error = redlock.try_lock(KEY).await.unwrap_err().to_string();
    assert!(error.contains("its ballots are gone"), "{error}");
    assert!(servers[..2].iter().all(|server| sets(server).is_empty()));
    in_time(redlock.init_with(AGAIN)).await.unwrap();
    for at in 0..3 {
        until(&redlock, at, Standing::Admitted).await;
        complete(&servers[at]);
    }
    tape.visit(&redlock).await;
}
