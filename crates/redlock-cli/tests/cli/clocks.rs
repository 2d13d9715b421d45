//! Clients whose wall clocks are wrong: no fencing token goes by them. Needs `cc`.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_testkit::RedisServers;
use redlock_testkit::lab::{WallClocks, calls};

use crate::support::{answer_of, ask, redlock};

/// In milliseconds.
const HOUR: i64 = 3_600_000;
const MINUTE: Duration = Duration::from_secs(60);

/// Returns microseconds since 1970, by our own clock, which the masters share.
fn now_us() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()
}

/// Returns the time that a program with such a clock sees.
fn shown_us(clock: &[(&str, PathBuf)]) -> u128 {
    let mut date = Command::new("date");
    let shown = answer_of(date.arg("+%s").envs(clock.iter().cloned()));
    shown.success().parse::<u128>().unwrap() * 1_000_000
}

/// A lock by a process that goes by this clock; released by another one, which goes by ours.
fn fence(servers: &RedisServers, clock: &[(&'static str, PathBuf)]) -> u64 {
    let mut acquire = redlock(servers, ["acquire", "k", "--json"]);
    let acquired = answer_of(acquire.envs(clock.iter().cloned()));
    acquired.success();
    let lock = acquired.json();
    ask(servers, ["release", "k", lock["token"].as_str().unwrap()]).success();
    lock["fencing_token"].as_u64().unwrap()
}

#[test]
fn clocks_two_hours_apart_need_no_second_ballot() {
    let (servers, clocks) = (RedisServers::start(3).unwrap(), WallClocks::new(&[HOUR, -HOUR]));
    let clocks = [0, 1].map(|place| clocks.variables(place));
    let [ahead, behind] = [0, 1].map(|place| shown_us(&clocks[place]));
    let nearly_an_hour = 59 * MINUTE.as_micros();
    assert!(ahead > now_us() + nearly_an_hour && behind + nearly_an_hour < now_us());
    let mut last = 0;
    for turn in 0..10 {
        let fence = fence(&servers, &clocks[turn % 2]);
        assert!(fence > last, "{fence} behind {last}");
        assert!(u128::from(fence).abs_diff(now_us()) < MINUTE.as_micros(), "{fence}");
        last = fence;
    }
    // A client queries the score of a master that rejected its ballot.
    let scores: u64 = servers.iter().map(|server| calls(server, "zscore")).sum();
    assert_eq!(scores, 0, "each first ballot was accepted");
}
