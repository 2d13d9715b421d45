//! A transfer between two accounts, under the locks of both.
//!
//! Each account has its own lock, so transfers between other accounts continue. One call takes both
//! locks, all or none, so transfers in opposite directions never wait for each other in a circle.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p redlock-quorum --example transfer`. Without
//! `REDLOCK_NODES`, it starts five disposable masters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use redlock_quorum::{FencingToken, Redlock};
use redlock_testkit::RedisServers;
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if let Ok(nodes) = std::env::var("REDLOCK_NODES") {
        return bank_day(&Redlock::connect(nodes.split(','))?).await;
    }
    let masters = RedisServers::start(5)?;
    bank_day(&Redlock::connect(masters.urls())?).await
}

/// Transfers in a circle and in both directions, all at the same time.
async fn bank_day(redlock: &Redlock) -> anyhow::Result<()> {
    let ledger = Ledger::default();
    let mut transfers = JoinSet::new();
    for (from, to) in [("ann", "bob"), ("bob", "ann"), ("bob", "cid"), ("cid", "ann")] {
        let (redlock, ledger) = (redlock.clone(), ledger.clone());
        transfers.spawn(async move { transfer(&redlock, &ledger, from, to, 10).await });
    }
    while let Some(done) = transfers.join_next().await {
        println!("{}", done??);
    }
    println!("all accounts together: {}", ledger.total());
    Ok(())
}

async fn transfer(
    redlock: &Redlock,
    ledger: &Ledger,
    from: &str,
    to: &str,
    amount: i64,
) -> anyhow::Result<String> {
    let (source, target) = (format!("account:{from}"), format!("account:{to}"));
    let locks = redlock.lock_all([&source, &target]).await?;
    // The store gets the token of the account that it writes, and refuses a smaller one later.
    ledger.add(from, -amount, locks.fencing_token(&source).context("locks have tokens")?)?;
    locks.check().context("only one half was booked")?;
    ledger.add(to, amount, locks.fencing_token(&target).context("locks have tokens")?)?;
    // Both halves are booked, even if no quorum confirms the release.
    let _ = locks.release().await;
    Ok(format!("{amount} from {from} to {to}"))
}

/// A store that checks fencing tokens. The example `fenced` has a real one.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<BTreeMap<String, (FencingToken, i64)>>>);

impl Ledger {
    fn add(&self, account: &str, amount: i64, token: FencingToken) -> anyhow::Result<()> {
        let mut accounts = self.0.lock().map_err(|_| anyhow::anyhow!("a booking has panicked"))?;
        let entry = accounts.entry(account.into()).or_insert((token, 0));
        anyhow::ensure!(entry.0 <= token, "the booking on {account} comes late");
        *entry = (token, entry.1 + amount);
        Ok(())
    }

    fn total(&self) -> i64 {
        self.0.lock().map(|accounts| accounts.values().map(|(_, sum)| sum).sum()).unwrap_or(0)
    }
}

#[tokio::test]
async fn transfers_in_both_directions_are_all_booked() -> anyhow::Result<()> {
    let masters = RedisServers::start(5)?;
    tokio::time::timeout(
        std::time::Duration::from_secs(60),
        bank_day(&Redlock::connect(masters.urls())?),
    )
    .await?
}
