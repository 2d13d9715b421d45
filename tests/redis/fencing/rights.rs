//! Users without all the rights that ballots need.

use redlock_core::{Cause, Verdict, WhyNot};
use redlock_quorum::{AcquireError, Redlock, RedlockBuilder};
use redlock_testkit::{RedisServer, RedisServers};

use super::{KEY, Tape, sets};
use crate::admission::{admitted, handle_on, run};
use crate::lab::{in_time, secs};

/// Creates a handle of a user with all rights except this one, on admitted masters.
async fn without(right: &str) -> (RedisServers, RedlockBuilder) {
    let (servers, _) = admitted(3).await;
    let right = format!("-{right}");
    for server in servers.iter() {
        run(server, &["ACL", "SETUSER", "few", "on", ">secret", "~*", "&*", "+@all", &right]);
    }
    let url = |server: &RedisServer| format!("redis://few:secret@{}", server.name());
    let builder = handle_on(servers.iter().map(url));
    (servers, builder)
}

async fn serves(redlock: &Redlock) {
    let guard = in_time(redlock.lock(KEY).wait(secs(5)).into_future()).await.unwrap();
    in_time(guard.release()).await.unwrap();
}

#[tokio::test]
async fn only_plain_locks_work_without_the_right_to_ballots() {
    let (_servers, builder) = without("zadd").await;
    let error = builder.clone().build().unwrap().lock(KEY).wait(secs(5)).await.unwrap_err();
    let AcquireError::NoQuorum { votes, .. } = &error else { panic!("{error}") };
    for vote in votes {
        match &vote.verdict {
            Verdict::Unknown(Cause::NotAdmitted(why)) if why.why == WhyNot::NoBallots => {
                let step_error = why.step_error.as_deref().unwrap();
                assert!(
                    step_error.contains("NOPERM") && step_error.contains("zadd"),
                    "{step_error}"
                );
            }
            verdict => panic!("{verdict}"),
        }
    }
    serves(&builder.fencing(false).build().unwrap()).await;
}

/// A ballot that is accepted immediately needs no score. A refused ballot is not a vote, and the
/// error shows the missing right.
#[tokio::test]
async fn without_score_rights_only_first_ballots_are_valid() {
    let (servers, builder) = without("zscore").await;
    let (redlock, tape) = (builder.build().unwrap(), Tape::default());
    tape.visit(&redlock).await;
    tape.visit(&redlock).await;
    let member = redlock_core::Member::of(KEY.as_bytes()).number().to_string();
    let ahead = (tape.last() + 3_600_000_000).to_string();
    for server in servers.iter() {
        run(server, &["ZADD", &sets(server)[0], "XX", &ahead, &member]);
    }
    let error = redlock.try_lock(KEY).await.unwrap_err().to_string();
    assert!(error.contains("NOPERM") && error.contains("zscore"), "{error}");
}
