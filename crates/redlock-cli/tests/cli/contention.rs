//! Many processes, one lock, and masters that fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use redlock_testkit::RedisServers;

use crate::support::{Scratch, ask};

const PROCESSES: usize = 8;
const ROUNDS: usize = 15;

#[test]
fn increments_by_eight_processes_are_never_lost() {
    let servers = RedisServers::start(5).unwrap();
    let scratch = Scratch::new("counter");
    let counter = scratch.file("counter");
    fs::write(&counter, "0\n").unwrap();
    // The value is stale when it is written, so any overlap loses an increment.
    let script = format!("n=$(cat {0}); sleep 0.01; echo $((n + 1)) > {0}", counter.display());
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let waits = ["--wait", "5m", "--node-timeout", "500ms"];
                    let [a, b, c, d] = waits;
                    ask(&servers, ["run", "counter", a, b, c, d, "--", "sh", "-c", &script])
                        .success();
                    match done.fetch_add(1, Ordering::Relaxed) {
                        30 => servers[0].kill(),
                        60 => servers[1].pause().unwrap(),
                        90 => servers[1].resume().unwrap(),
                        _ => {}
                    }
                }
            });
        }
    });
    let count: usize = fs::read_to_string(&counter).unwrap().trim().parse().unwrap();
    assert_eq!(count, PROCESSES * ROUNDS);
}
