//! Real masters whose wall clock is stepped, or boots wrong, during a quarantine. Needs `cc`.

use redlock_quorum::{Redlock, Standing};
use redlock_testkit::lab::{WallClocks, ahead, poll};
use redlock_testkit::{RedisServer, ServerOptions};
use tokio::time::{Instant, sleep};

use crate::admission::{LENGTH, handle_on};
use crate::lab::{eventually, ms, secs};

/// In milliseconds.
pub(crate) const HOUR: i64 = 3_600_000;

/// Three masters, each with a wall clock that the test sets, and a handle that they were admitted
/// for.
pub(crate) struct Lab {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) redlock: Redlock,
    clocks: WallClocks,
}

impl Lab {
    pub(crate) async fn new() -> Self {
        Self::with([0; 3]).await
    }

    /// The clocks are so many milliseconds ahead of ours.
    pub(crate) async fn with(ahead: [i64; 3]) -> Self {
        let clocks = WallClocks::new(&ahead);
        let brand_new = ServerOptions::new().brand_new();
        let server = |place| RedisServer::with(&clocks.on(place, brand_new.clone())).unwrap();
        let servers: Vec<RedisServer> = (0..3).map(server).collect();
        let redlock = handle_on(servers.iter().map(RedisServer::url)).build().unwrap();
        assert_eq!(redlock.init().await.unwrap().admitted(), 3);
        Self { servers, redlock, clocks }
    }

    /// Sets by how many milliseconds the clock of a master is ahead of ours. Servers read it now
    /// and then.
    pub(crate) fn set_ahead(&self, place: usize, millis: i64) {
        self.clocks.set(place, millis);
        let is_shown = || (ahead(&self.servers[place]) - millis).abs() <= 1_000;
        poll("the server shows it", || is_shown().then_some(()));
    }

    pub(crate) fn restart_empty(&self, boots: i64) {
        self.clocks.set(0, boots);
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
        let begun = Instant::now();
        self.restart_empty(boots);
        assert!((ahead(&self.servers[0]) - boots).abs() <= 1_000, "{}", ahead(&self.servers[0]));
        self.until(Standing::Quarantine).await;
        self.set_ahead(0, becomes);
        self.until(Standing::Admitted).await;
        assert!(begun.elapsed() >= LENGTH, "{:?}", begun.elapsed());
        eventually("its copy counts again", || guard.copies() == 3).await;
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn clock_stepped_ahead_does_not_shorten_a_quarantine() {
    Lab::new().await.judge(0, HOUR).await;
}

/// The recorded end is then an hour ahead, and the quarantine starts again.
#[tokio::test]
async fn clock_stepped_back_does_not_prolong_a_quarantine_forever() {
    Lab::new().await.judge(0, -HOUR).await;
}

#[tokio::test]
async fn master_booting_an_hour_ahead_has_a_normal_quarantine() {
    Lab::new().await.judge(HOUR, 0).await;
}

#[tokio::test]
async fn master_booting_an_hour_behind_has_a_normal_quarantine() {
    Lab::new().await.judge(-HOUR, 0).await;
}
