//! Recipes, on real servers.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redlock_quorum::{AcquireError, LostReason, Once, Redlock, RunError, blocking};
use redlock_testkit::RedisServer;

use crate::lab::{calls, masters, ms, no_key_is_left, patient, secs, value};

thread_local! {
    /// The owner for what this thread does: code that cannot pass it on finds it here.
    static OWNER: RefCell<Option<blocking::Reentrant>> = const { RefCell::new(None) };
}

/// Adds one, `depth` calls deep, each under the lock of this thread's owner.
fn add_one(depth: u32, value: &std::sync::Mutex<u64>) {
    let owner = OWNER.with_borrow(Clone::clone).unwrap();
    let outcome = owner.lock().run(|hold| match depth {
        0 => {
            // Two steps: another owner in between would lose one of the additions.
            let before = *value.lock().unwrap();
            thread::yield_now();
            hold.check().unwrap();
            *value.lock().unwrap() = before + 1;
        }
        deeper => add_one(deeper - 1, value),
    });
    outcome.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_with_reentrant_locks_exclude_each_other() {
    let servers = masters();
    let value = Arc::new(std::sync::Mutex::new(0));
    let mut threads = Vec::new();
    for _ in 0..4 {
        let (urls, value) = (servers.urls(), value.clone());
        threads.push(thread::spawn(move || {
            let redlock = patient(urls).wait(secs(60)).build_blocking().unwrap();
            OWNER.set(Some(redlock.reentrant("sum")));
            (0..10).for_each(|_| add_one(3, &value));
            OWNER.set(None);
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*value.lock().unwrap(), 40);
    no_key_is_left(&servers).await;
}

/// A reader of the depth holds nothing, so the release of the last guard waits for the release of
/// the lock.
#[tokio::test(flavor = "multi_thread")]
async fn last_release_is_awaited_while_depth_is_read() {
    let server = RedisServer::start().unwrap();
    let redlock = patient([server.url()]).build().unwrap();
    let owner = redlock.reentrant("seen");
    let (watched, is_over) = (owner.clone(), Arc::new(AtomicBool::new(false)));
    let ends = is_over.clone();
    let watcher = thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            assert!(watched.depth() <= 1);
        }
    });
    for _ in 0..500 {
        owner.lock().await.unwrap().release().await.unwrap();
        assert_eq!(value(&server, "seen"), None);
    }
    is_over.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
}

#[tokio::test]
async fn reentering_a_lock_sends_no_request() {
    let servers = masters();
    let redlock = patient(servers.urls()).build().unwrap();
    let owner = redlock.reentrant("account:42");
    let outer = owner.lock().await.unwrap();
    outer.settled().await;
    let asked = || servers.iter().map(|server| calls(server, "set")).collect::<Vec<_>>();
    let before = asked();
    for _ in 0..100 {
        owner.lock().await.unwrap().release().await.unwrap();
    }
    assert_eq!(asked(), before);
    let other = patient(servers.urls()).build().unwrap().reentrant("account:42");
    let refused = other.try_lock().await.unwrap_err();
    assert!(matches!(refused, AcquireError::Held { .. }), "{refused}");
    outer.release().await.unwrap();
    other.try_lock().await.unwrap().release().await.unwrap();
    no_key_is_left(&servers).await;
}

/// Each thread has its own handle, and the sets overlap in every order.
#[tokio::test(flavor = "multi_thread")]
async fn overlapping_sets_are_served_and_exclude_each_other() {
    const ACCOUNTS: usize = 4;
    let servers = masters();
    let accounts = Arc::new(std::sync::Mutex::new([1_000_i64; ACCOUNTS]));
    let mut threads = Vec::new();
    for thread in 0..4 {
        let (urls, accounts) = (servers.urls(), accounts.clone());
        threads.push(thread::spawn(move || {
            let redlock = patient(urls).wait(secs(120)).build_blocking().unwrap();
            for round in 0..15 {
                let (from, to) = (thread, (thread + 1 + round % (ACCOUNTS - 1)) % ACCOUNTS);
                let names = [from, to].map(|account| format!("account:{account}"));
                let outcome = redlock.lock_all(&names).run(|hold| {
                    // Two steps: another transfer in between would lose one of them.
                    let before = *accounts.lock().unwrap();
                    thread::yield_now();
                    hold.check().unwrap();
                    let mut accounts = accounts.lock().unwrap();
                    accounts[from] = before[from] - 1;
                    accounts[to] = before[to] + 1;
                });
                outcome.unwrap();
            }
        }));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(accounts.lock().unwrap().iter().sum::<i64>(), 1_000 * ACCOUNTS as i64);
    no_key_is_left(&servers).await;
}

#[tokio::test]
async fn set_is_refused_completely_and_names_the_held_key() {
    let servers = masters();
    let (one, other): (Redlock, Redlock) =
        (patient(servers.urls()).build().unwrap(), patient(servers.urls()).build().unwrap());
    let held = one.lock("account:2").min_copies(5).await.unwrap();
    let refused = other.try_lock_all(["account:3", "account:2", "account:1"]).await.unwrap_err();
    assert!(refused.to_string().starts_with("account:2 is held by another"), "{refused}");
    held.release().await.unwrap();
    no_key_is_left(&servers).await;
    let set = other.try_lock_all(["account:3", "account:2", "account:1"]).await.unwrap();
    assert!(set.iter().all(|guard| guard.fencing_token().is_some()));
    set.release().await.unwrap();
    no_key_is_left(&servers).await;
}

const MARK: &str = "redlock-quorum:1:done:report";

#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_several_threads_does_the_work() {
    let servers = masters();
    let mut threads = Vec::new();
    for host in 0..6 {
        let urls = servers.urls();
        threads.push(thread::spawn(move || {
            let label = format!("host-{host}");
            let redlock = patient(urls).wait(secs(60)).label(&label).build_blocking().unwrap();
            let once = redlock.once("report").within(secs(3_600));
            let ran = once.run(|hold| hold.check().map(|()| thread::sleep(ms(50)))).unwrap();
            (label, ran)
        }));
    }
    let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let ran: Vec<_> = outcomes.iter().filter(|(_, once)| *once == Once::Ran(Ok(()))).collect();
    assert_eq!(ran.len(), 1, "{outcomes:?}");
    for (_, once) in &outcomes {
        if let Once::Done { by, .. } = once {
            assert_eq!(by.as_ref(), Some(&ran[0].0));
        }
    }
    let last = patient(servers.urls()).build().unwrap().last_run("report").await.unwrap();
    assert_eq!(last.unwrap().by.as_ref(), Some(&ran[0].0));
    for server in &*servers {
        assert!(value(server, MARK).unwrap().ends_with(&format!(" 0 {}", ran[0].0)));
    }
    // A reservation that arrived late stays until it expires.
    no_key_is_left(&servers).await;
}

#[test]
fn blocking_work_that_fails_or_is_late_leaves_no_mark() {
    let servers = masters();
    let redlock = patient(servers.urls()).build_blocking().unwrap();
    let once = || redlock.once("report").fire(7);
    let failed = once().try_run(|_| Err::<(), _>(anyhow::anyhow!("no paper")));
    assert_eq!(failed.unwrap_err().to_string(), "no paper");
    let short = once().ttl(secs(20)).auto_extend(false).stop_margin(secs(17));
    match short.run(|_| thread::sleep(secs(3))) {
        Err(RunError::Lost { lost, output: Some(()) }) => {
            assert_eq!(lost.reason, LostReason::NotExtended);
        }
        outcome => panic!("{outcome:?}"),
    }
    assert_eq!(redlock.last_run("report").unwrap(), None);
    assert!(servers.iter().all(|server| value(server, MARK).is_none()));
    let ran: anyhow::Result<_> = once().wait(secs(60)).try_run(|_| Ok(9));
    assert_eq!(ran.unwrap(), Once::Ran(9));
    assert!(matches!(once().run(|_| ()), Ok(Once::Done { .. })));
}
