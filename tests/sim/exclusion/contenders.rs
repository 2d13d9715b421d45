//! Contenders with the real lock, and the campaigns that they go through.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redlock_core::Clock;
use redlock_quorum::{Guard, LockRequest, Quarantine, Redlock, RedlockBuilder};
use redlock_testkit::{Contender, History, Nemesis, SimNodes, check, check_tokens, no_residue};
use tokio::time::{sleep, timeout};

use crate::arena::{GUARD, RESOURCE, TTL, handle, ms};
use crate::exclusion::traffic;

/// The parameters of a campaign.
#[derive(Clone, Copy)]
pub(crate) struct Campaign {
    pub(crate) masters: usize,
    pub(crate) contenders: usize,
    /// So many of them are callers of one process: they share a handle, and so connections and
    /// network faults, and hand leases on to one another.
    pub(crate) callers: usize,
    pub(crate) length: Duration,
    /// With it masters may forget. It takes no longer than a key lives.
    pub(crate) quarantine: Quarantine,
}

/// The result of a campaign.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Claims that the checker judged.
    pub(crate) claims: usize,
    /// Fencing tokens that it judged.
    pub(crate) tokens: usize,
    /// How often a lease was passed on.
    pub(crate) handed_over: u64,
    /// When each began and ended, as text: equal for equal runs.
    pub(crate) story: Vec<String>,
    /// The requests that masters carried out, in the form that `traffic` defines.
    pub(crate) traffic: u64,
}

impl Campaign {
    /// Contenders and nemesis side by side; then the checker judges what the contenders saw, a
    /// last contender must get the lock, and nothing may be left.
    pub(crate) async fn run(&self, seed: u64, nemesis: &Nemesis) -> anyhow::Result<Outcome> {
        let masters = SimNodes::new(self.masters, seed);
        if self.quarantine == Quarantine::On {
            masters.init(TTL);
        }
        let history = Arc::new(History::new(masters.clock()));
        let processes = self.contenders / self.callers;
        let clients: Vec<_> = (0..processes).map(|_| masters.another_client()).collect();
        let handles: Vec<_> = clients
            .iter()
            .zip(seed * 1_000..)
            .map(|(client, own)| self.process(client, own))
            .collect();
        let work = (0..self.contenders).map(|number| {
            let process = &handles[number / self.callers];
            Worker::new(self, number, process, &masters, &history, seed).work(self.length)
        });
        let (worked, ()) = tokio::join!(join_all(work), nemesis.run(&clients, self.length));
        worked.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
        let handed_over = handles.iter().map(|(_, redlock)| redlock.stats().handed_over).sum();
        drop(handles);
        let records = history.records();
        let claims = check(&records)?;
        let tokens = check_tokens(&records)?;
        let story = records
            .iter()
            .map(|record| format!("{:?} {} {:?}", record.at, record.contender, record.event));
        let story = story.collect();
        let traffic = traffic::digest(&masters);
        self.aftermath(&masters).await?;
        Ok(Outcome { claims, tokens, handed_over, story, traffic })
    }

    fn handle(&self, masters: &SimNodes) -> RedlockBuilder {
        let has_quarantine = self.quarantine == Quarantine::On;
        masters.iter().for_each(|master| master.set_quarantine(has_quarantine));
        handle(masters).max_ttl(TTL).quarantine(self.quarantine)
    }

    /// The handle of one process, and the label of its locks.
    fn process(&self, client: &SimNodes, own: u64) -> (String, Redlock) {
        let label = format!("process-{}", own % 1_000);
        let redlock = self.handle(client).seed(own).label(&label).build().unwrap();
        (label, redlock)
    }

    /// All faults are over: within the life of a key everything is as good as new.
    async fn aftermath(&self, masters: &SimNodes) -> anyhow::Result<()> {
        let redlock = self.handle(masters).build()?;
        let guard = redlock.lock(RESOURCE).wait((TTL + GUARD) * 2).await;
        guard.context("after all faults have ended")?.release().await?;
        sleep((TTL + GUARD) * 2).await;
        Ok(no_residue(masters.keys())?)
    }
}

/// One contender.
struct Worker {
    redlock: Redlock,
    log: Contender,
    masters: SimNodes,
    clock: Clock,
    rng: StdRng,
    number: usize,
    /// That of the locks of its process.
    label: String,
    grants: usize,
    /// Masters may lose data: a holder has fewer copies than it knows, and is still the only
    /// holder.
    may_lose: bool,
}

impl Worker {
    fn new(
        campaign: &Campaign,
        number: usize,
        (label, redlock): &(String, Redlock),
        masters: &SimNodes,
        history: &Arc<History>,
        seed: u64,
    ) -> Self {
        let own = seed * 1_000 + number as u64;
        Self {
            redlock: redlock.clone(),
            log: history.contender(number, RESOURCE),
            masters: masters.clone(),
            clock: masters.clock(),
            rng: StdRng::seed_from_u64(own),
            number,
            label: label.clone(),
            grants: 0,
            may_lose: campaign.quarantine == Quarantine::On,
        }
    }

    async fn work(mut self, length: Duration) -> anyhow::Result<()> {
        while self.clock.now().as_nanos() < length.as_nanos() as u64 {
            self.log.invoke();
            match self.acquire().await {
                None => self.log.refused(),
                Some(guard) => self.hold(guard).await?,
            }
            sleep(self.up_to(100)).await;
        }
        Ok(())
    }

    /// Requests the lock in one of the ways that users have. Some give up.
    async fn acquire(&mut self) -> Option<Guard> {
        let request = self.request();
        if self.rng.random_bool(0.1) {
            return timeout(self.up_to(200), request.into_future()).await.ok()?.ok();
        }
        request.await.ok()
    }

    fn request(&mut self) -> LockRequest {
        let request = self.redlock.lock(RESOURCE).wait(self.up_to(2_000));
        let request = request.auto_extend(self.rng.random_bool(0.7));
        match self.rng.random_range(0..4) {
            0 => request.min_copies(self.masters.len()),
            1 => request.stop_margin(self.up_to(300)),
            2 => request.max_hold(self.up_to(3_000)),
            _ => request,
        }
    }

    /// Uses the lock for a while, and stops in one of the ways that users have.
    async fn hold(&mut self, guard: Guard) -> anyhow::Result<()> {
        self.grants += 1;
        let token = format!("{}-{}", self.number, self.grants);
        self.claim_first(&guard, &token)?;
        for _ in 0..self.rng.random_range(0..6) {
            let pause = self.up_to(600);
            if self.rng.random_bool(0.3) {
                // The process is paused: nothing is polled, and the clock continues.
                sleep(pause).await;
            } else {
                let _ = timeout(pause, guard.lost()).await;
            }
            if self.rng.random_bool(0.2) {
                let _ = guard.extend(TTL).await;
            }
            if !guard.is_held() {
                self.log.lost(&token);
                return Ok(());
            }
            self.claim(&guard, &token)?;
        }
        self.part(guard, &token).await;
        Ok(())
    }

    /// Writes down that the lock was returned, and with which fencing token.
    fn claim_first(&self, guard: &Guard, token: &str) -> anyhow::Result<()> {
        let fencing_token = guard.fencing_token().context("a lock without fencing token")?;
        let until = self.clock.now().saturating_add(guard.remaining());
        self.log.fenced(token, fencing_token.get(), until);
        self.claim(guard, token)
    }

    /// Writes down that the lock is held, and looks whether that is true.
    fn claim(&self, guard: &Guard, token: &str) -> anyhow::Result<()> {
        let left = guard.remaining();
        if left > Duration::ZERO {
            self.log.granted(token, self.clock.now().saturating_add(left));
            let copies = self.copies();
            let is_enough = copies > self.masters.len() / 2 || self.may_lose;
            ensure!(is_enough, "{token} is held by {copies} masters only");
        }
        Ok(())
    }

    /// How many masters have a key of its process.
    fn copies(&self) -> usize {
        let ours = |holder: String| holder.ends_with(&self.label);
        self.masters.iter().filter(|master| master.holder(RESOURCE).is_some_and(ours)).count()
    }

    async fn part(&mut self, guard: Guard, token: &str) {
        match self.rng.random_range(0..8) {
            // To the others it is dead, so its claim lasts until its end.
            0 => guard.forget(),
            1 => {
                self.log.released(token);
                drop(guard);
            }
            2 => {
                self.log.released(token);
                let _ = timeout(self.up_to(20), guard.release()).await;
            }
            _ => {
                self.log.released(token);
                let _ = guard.release().await;
            }
        }
    }

    fn up_to(&mut self, millis: u64) -> Duration {
        ms(self.rng.random_range(0..=millis))
    }
}
