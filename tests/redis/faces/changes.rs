//! Streams of changes, elections and permits on real servers, also for code that does not await.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use futures::StreamExt;
use redlock_quorum::{AcquireError, Leader, State};
use redlock_testkit::lab::{Paused, poll};

use crate::lab::{calls, in_time, masters, ms, no_key_is_left, patient, secs};

#[tokio::test]
async fn stream_reports_each_holder_with_two_masters_down() {
    let servers = masters();
    let redlock = patient(servers.urls()).node_timeout(ms(500)).build().unwrap();
    let observer = patient(servers.urls()).node_timeout(ms(500)).build().unwrap();
    let mut watch = observer.watch("k");
    assert_eq!(in_time(watch.next()).await.unwrap().state, State::Free);
    let _paused = Paused::new(&servers[0]);
    servers[1].kill();
    for _ in 0..3 {
        let guard = in_time(redlock.lock("k").into_future()).await.unwrap();
        let State::Held { token, .. } = in_time(watch.next()).await.unwrap().state else {
            panic!("it is held");
        };
        assert_eq!(token, guard.token().as_str());
        in_time(guard.release()).await.unwrap();
        assert_eq!(in_time(watch.next()).await.unwrap().state, State::Free);
    }
}

#[tokio::test]
async fn stream_without_changes_sends_few_requests() {
    const SECONDS: u64 = 5;
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let guard = redlock.lock("k").min_copies(5).await.unwrap();
    let observer = patient(servers.urls()).build().unwrap();
    let mut watch = observer.watch("k");
    in_time(watch.next()).await.unwrap();
    let scripts = || servers.iter().map(|server| calls(server, "evalsha")).sum::<u64>();
    let before = scripts();
    assert!(tokio::time::timeout(secs(SECONDS), watch.next()).await.is_err());
    let sent = scripts() - before;
    // One read may be at either end.
    assert!((5 * (SECONDS - 1)..=6 * (SECONDS + 1)).contains(&sent), "{sent} in {SECONDS} s");
    drop(guard);
}

#[test]
fn blocking_iterators_follow_changes_until_shutdown() {
    let servers = masters();
    let redlock = patient(servers.urls()).build_blocking().unwrap();
    let other = patient(servers.urls()).build_blocking().unwrap();
    let mut changes = other.watch("scheduler");
    let election = redlock.election("scheduler").candidate("10.0.0.7:8080");
    let mut leaders = other.election("scheduler").observe();
    assert_eq!(changes.next().unwrap().state, State::Free);
    assert_eq!(leaders.next(), Some(Leader::None));
    let leadership = election.campaign().unwrap();
    assert!(matches!(changes.next().unwrap().state, State::Held { .. }));
    let Some(Leader::Is { text, token, .. }) = leaders.next() else { panic!("it leads") };
    assert_eq!((text.as_str(), token.as_str()), ("10.0.0.7:8080", leadership.token().as_str()));
    leadership.resign().unwrap();
    assert_eq!(leaders.next(), Some(Leader::None));
    assert!(election.run(|hold| hold.is_held()).unwrap());
    assert_eq!(other.election("scheduler").leader(), Leader::None);
    let waiting = thread::spawn(move || leaders.last());
    other.shutdown(secs(5)).unwrap();
    waiting.join().unwrap();
    assert_eq!(changes.last().map(|status| status.state == State::Undecided), None);
}

#[test]
fn threads_never_hold_too_many_permits() {
    const PERMITS: u32 = 3;
    let servers = masters();
    let held = Arc::new(AtomicU32::new(0));
    let mut threads = Vec::new();
    for thread in 0..5 {
        let (urls, held) = (servers.urls(), held.clone());
        threads.push(thread::spawn(move || {
            let redlock = patient(urls).wait(secs(120)).build_blocking().unwrap();
            let semaphore = redlock.semaphore("backups", PERMITS);
            for round in 0..8 {
                let count = 1 + (thread + round) % 2;
                let permits = semaphore.acquire_many(count).acquire().unwrap();
                let now = held.fetch_add(count, Ordering::SeqCst) + count;
                assert!(now <= PERMITS, "{now} permits");
                thread::sleep(ms(5));
                held.fetch_sub(count, Ordering::SeqCst);
                assert!(permits.is_held() && permits.slots().len() == count as usize);
                permits.release().unwrap();
            }
            semaphore.acquire().run(|hold| hold.check()).unwrap().unwrap();
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let redlock = patient(servers.urls()).build_blocking().unwrap();
    let semaphore = redlock.semaphore("backups", 1);
    let permit = semaphore.try_acquire().acquire().unwrap();
    assert_eq!(permit.slot(), 0);
    let refused = semaphore.try_acquire().acquire().unwrap_err();
    assert!(matches!(refused, AcquireError::Held { .. }), "{refused}");
    // A refused call releases the gate in the background.
    poll("no process waits", || (semaphore.status().unwrap().waiters == 0).then_some(()));
    permit.release().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(no_key_is_left(&servers));
}
