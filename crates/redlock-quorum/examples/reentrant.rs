//! Code that takes a lock, and calls code that takes the same lock.
//!
//! `Account` is the owner of its lock. Every method that it calls enters the lock once more, and
//! nothing is sent for that. A separate `Account` of the same name is a separate contender.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p redlock-quorum --example reentrant`. Without
//! `REDLOCK_NODES`, it starts five disposable masters.

use redlock_quorum::{AcquireError, Redlock, Reentrant};
use redlock_testkit::RedisServers;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    if let Ok(nodes) = std::env::var("REDLOCK_NODES") {
        return show(&Redlock::connect(nodes.split(','))?).await;
    }
    let masters = RedisServers::start(5)?;
    show(&Redlock::connect(masters.urls())?).await
}

async fn show(redlock: &Redlock) -> anyhow::Result<()> {
    let account = Account::new(redlock, "account:42");
    account.close().await?;
    println!("closed, and the lock is free again: {}", account.lock.depth() == 0);
    Ok(())
}

struct Account {
    lock: Reentrant,
}

impl Account {
    fn new(redlock: &Redlock, name: &str) -> Self {
        Self { lock: redlock.reentrant(name) }
    }

    /// Pays out the rest, and closes the account, under one lock.
    async fn close(&self) -> Result<(), AcquireError> {
        let guard = self.lock.lock().await?;
        self.pay_out().await?;
        println!("closing; the lock is held by {} call", self.lock.depth());
        // The outermost guard releases. An unconfirmed release does not affect the work.
        let _ = guard.release().await;
        Ok(())
    }

    /// Can also be called on its own, so it takes the lock itself.
    async fn pay_out(&self) -> Result<(), AcquireError> {
        let _guard = self.lock.lock().await?;
        println!("paying out; the lock is held by {} calls", self.lock.depth());
        Ok(())
    }
}

#[tokio::test]
async fn inner_call_enters_and_the_outermost_releases() -> anyhow::Result<()> {
    let masters = RedisServers::start(5)?;
    let redlock = Redlock::connect(masters.urls())?;
    show(&redlock).await?;
    let (one, other) = (Account::new(&redlock, "a"), Account::new(&redlock, "a"));
    let _guard = one.lock.lock().await?;
    one.pay_out().await?;
    assert!(other.lock.try_lock().await.is_err(), "another owner is another contender");
    Ok(())
}
