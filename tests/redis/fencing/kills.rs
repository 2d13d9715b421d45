//! Servers that close all connections every few milliseconds, while ballots are refused.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use redlock_core::Member;
use redlock_quorum::Redlock;
use redlock_testkit::RedisServers;
use tokio::task::JoinSet;

use super::{KEY, Tape, complete};
use crate::admission::run;
use crate::lab::{PATIENCE, eventually, in_time, masters, ms, no_key_is_left, patient, secs};

const STORM: Duration = secs(4);
const CLIENTS: usize = 4;

/// Ends all connections of one server after the other, and raises the score of the key there, so
/// that the next ballot is refused.
fn strike(servers: &RedisServers, is_over: &AtomicBool) {
    let member = Member::of(KEY.as_bytes()).number().to_string();
    let sets: Vec<String> = servers.iter().map(complete).collect();
    while !is_over.load(SeqCst) {
        let struck = rand::random_range(0..sets.len());
        // Ten milliseconds, in the numbers of scores.
        run(&servers[struck], &["ZINCRBY", &sets[struck], "10016", &member]);
        thread::sleep(ms(rand::random_range(0..4)));
        run(&servers[struck], &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        thread::sleep(ms(rand::random_range(0..4)));
    }
}

/// Takes locks and gives them back; most attempts fail.
async fn contend(redlock: Redlock, tape: Arc<Tape>, is_over: Arc<AtomicBool>) {
    while !is_over.load(SeqCst) {
        let contender = tape.begin();
        let Ok(guard) = redlock.lock(KEY).wait(ms(100)).await else { continue };
        tape.note(&contender, &guard);
        if rand::random() {
            // This test does not check the confirmation.
            let _ = guard.release().await;
        }
    }
}

/// The keys live for longer than is waited, so none of them is gone because it has expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frequent_disconnects_during_ballots_leave_no_key() {
    let (servers, tape) = (Arc::new(masters()), Arc::new(Tape::default()));
    let is_over = Arc::new(AtomicBool::default());
    let storm = {
        let (servers, is_over) = (servers.clone(), is_over.clone());
        thread::spawn(move || strike(&servers, &is_over))
    };
    let client = |_| patient(servers.urls()).node_timeout(ms(200)).build().unwrap();
    let clients: Vec<Redlock> = (0..CLIENTS).map(client).collect();
    let contender = |redlock: &Redlock| contend(redlock.clone(), tape.clone(), is_over.clone());
    let contenders: JoinSet<()> = clients.iter().map(contender).collect();
    let second_ballots =
        || -> u64 { clients.iter().map(|redlock| redlock.stats().second_ballots).sum() };
    tokio::time::sleep(STORM).await;
    eventually("ballots are refused", || second_ballots() > CLIENTS as u64).await;
    is_over.store(true, SeqCst);
    in_time(contenders.join_all()).await;
    storm.join().unwrap();
    for redlock in clients {
        redlock.shutdown(PATIENCE).await.expect("all releases are acknowledged");
    }
    no_key_is_left(&servers).await;
}
