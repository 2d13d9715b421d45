//! Real masters whose wall clock is stepped, or boots wrong, during a quarantine. Needs `cc`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock_quorum::{Redlock, Standing};
use redlock_testkit::{RedisServer, ServerOptions};
use tokio::time::{Instant, sleep};

use crate::admission::handle_on;
use crate::lab::{eventually, ms, secs, text};

/// How long a quarantine takes.
const LENGTH: Duration = ms(2_200);
const HOUR: i64 = 3_600;

/// Three masters, each with a wall clock that the test sets, and a handle that they were admitted
/// for.
struct Lab {
    servers: Vec<RedisServer>,
    redlock: Redlock,
    home: PathBuf,
}

impl Lab {
    async fn new(name: &str) -> Self {
        let home = std::env::temp_dir().join(format!("redlock-{name}-{}", std::process::id()));
        fs::create_dir_all(&home).unwrap();
        let library = compile(&home);
        let server = |place: usize| {
            let clock = clock(&home, place);
            fs::write(&clock, 0_i64.to_ne_bytes()).unwrap();
            let options = ServerOptions::new().brand_new().variable("LD_PRELOAD", &library);
            RedisServer::with(&options.variable("CLOCK_AHEAD", clock)).unwrap()
        };
        let servers: Vec<RedisServer> = (0..3).map(server).collect();
        let redlock = handle_on(servers.iter().map(RedisServer::url)).build().unwrap();
        assert_eq!(redlock.init().await.unwrap().admitted(), 3);
        Self { servers, redlock, home }
    }

    /// Sets how far the clock of the first master is ahead of ours.
    fn set_ahead(&self, secs: i64) {
        let clock = OpenOptions::new().write(true).open(clock(&self.home, 0));
        clock.unwrap().write_all(&secs.to_ne_bytes()).unwrap();
    }

    /// How far it is ahead, by its own word.
    fn ahead(&self) -> i64 {
        let (secs, _): (i64, i64) = text(&self.servers[0], &["TIME"]);
        let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        secs - i64::try_from(ours).unwrap()
    }

    fn restart_empty(&self) {
        self.servers[0].kill();
        self.servers[0].restart_empty().unwrap();
    }

    async fn standing(&self) -> Standing {
        self.redlock.inspect().await[0].standing
    }

    async fn until(&self, wanted: Standing) {
        let deadline = Instant::now() + secs(20);
        while self.standing().await != wanted {
            assert!(Instant::now() < deadline, "{:?}", self.redlock.inspect().await[0]);
            sleep(ms(5)).await;
        }
    }

    /// The first master comes back with nothing, and its clock goes from `boots` to `becomes` while
    /// it is in quarantine.
    async fn judge(&self, boots: i64, becomes: i64) {
        let guard = self.redlock.lock("a").wait(secs(5)).min_copies(3).await.unwrap();
        self.set_ahead(boots);
        let begun = Instant::now();
        self.restart_empty();
        assert!((self.ahead() - boots).abs() <= 1, "{}", self.ahead());
        self.until(Standing::Quarantine).await;
        self.set_ahead(becomes);
        assert!((self.ahead() - becomes).abs() <= 1, "{}", self.ahead());
        self.until(Standing::Admitted).await;
        assert!(begun.elapsed() >= LENGTH, "{:?}", begun.elapsed());
        eventually("its copy counts again", || guard.copies() == 3).await;
        guard.release().await.unwrap();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // What is left is a file of some kilobytes.
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn clock(home: &Path, place: usize) -> PathBuf {
    home.join(format!("clock-{place}"))
}

fn compile(home: &Path) -> PathBuf {
    let library = home.join("ahead.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/redis/clocks/ahead.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
    assert!(cc.status().expect("cc on the PATH").success());
    library
}

#[tokio::test]
async fn a_clock_that_is_stepped_an_hour_ahead_shortens_no_quarantine() {
    Lab::new("ahead").await.judge(0, HOUR).await;
}

/// The end that was written lies an hour ahead then, and is begun anew.
#[tokio::test]
async fn a_clock_that_is_stepped_an_hour_back_makes_no_quarantine_endless() {
    Lab::new("back").await.judge(0, -HOUR).await;
}

#[tokio::test]
async fn a_master_that_boots_an_hour_ahead_is_in_quarantine_as_long_as_others() {
    Lab::new("boots-ahead").await.judge(HOUR, 0).await;
}

#[tokio::test]
async fn a_master_that_boots_an_hour_behind_is_in_quarantine_as_long_as_others() {
    Lab::new("boots-behind").await.judge(-HOUR, 0).await;
}
