//! A process that is forked after the handle was made: it has no task that drives the handle, and
//! shares the sockets with its parent.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, exit};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fork::{Fork, waitpid_nohang};
use redlock_quorum::{
    AcquireError, Ended, ExtendError, InitError, InvalidRequest, Redlock, ReleaseError, blocking,
};
use redlock_testkit::RedisServers;
use tokio::runtime::{Builder, Runtime};

const FORKED: InvalidRequest = InvalidRequest::Forked;
/// The longest time that the calls of a child may take, on a machine that stalls.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `child` in a forked process, and fails if it panics, or is not done in time.
fn in_child(child: impl FnOnce()) -> Result<()> {
    let pid = match fork::fork()? {
        Fork::Child => exit(i32::from(catch_unwind(AssertUnwindSafe(child)).is_err())),
        Fork::Parent(pid) => pid,
    };
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = waitpid_nohang(pid)? {
            ensure!(status == 0, "the child failed: {status}");
            return Ok(());
        }
        if Instant::now() >= until {
            Command::new("kill").args(["-9", &pid.to_string()]).status()?;
            anyhow::bail!("the child waits forever");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

#[test]
fn forked_child_cannot_use_locks_or_affect_its_parents() -> Result<()> {
    let (servers, runtime) = (RedisServers::start(3)?, runtime()?);
    let redlock = Redlock::connect(servers.urls())?;
    let (held, dropped, given) = runtime.block_on(async {
        let held = redlock.lock("held").await?;
        let dropped = redlock.lock("dropped").await?;
        let given = redlock.lock("given").await?.into_lease();
        anyhow::Ok((held, dropped, given))
    })?;
    // Each process takes its own copy out of here.
    let mut values = Some((redlock, held, dropped, given));
    in_child(|| {
        let (redlock, held, dropped, given) = values.take().unwrap();
        let own = Builder::new_current_thread().enable_all().build().unwrap();
        own.block_on(async {
            let refused = redlock.lock("other").wait_forever().await.unwrap_err();
            assert_eq!(refused, AcquireError::Invalid(FORKED));
            let refused = redlock.try_lock("other").await.unwrap_err();
            assert_eq!(refused, AcquireError::Invalid(FORKED));
            let extended = held.extend(Duration::from_secs(10)).await;
            assert_eq!(extended, Err(ExtendError::Invalid(FORKED)));
            assert!(matches!(redlock.init().await, Err(InitError::Invalid(FORKED))));
            assert_eq!(redlock.release(given).await, Err(ReleaseError::Invalid(FORKED)));
            assert!(redlock.status("held").await.to_string().contains("after a fork"));
            held.settled().await;
            assert!(matches!(held.lost().await, Ended::Lost(_)));
            drop(dropped);
            assert_eq!(held.release().await, Err(ReleaseError::Invalid(FORKED)));
            assert_eq!(redlock.shutdown(PATIENCE).await, Ok(()));
        });
    })?;
    let (redlock, held, dropped, _) = values.take().unwrap();
    runtime.block_on(async {
        for guard in [&held, &dropped] {
            guard.check()?;
            guard.extend(Duration::from_secs(10)).await?;
            let status = redlock.status(guard.resource().clone()).await.to_string();
            ensure!(status.starts_with(&format!("held by {}", guard.token())), "{status}");
        }
        redlock.lock("other").await?.release().await?;
        held.release().await?;
        Ok(dropped.release().await?)
    })
}

#[test]
fn forked_child_cannot_use_blocking_locks() -> Result<()> {
    let servers = RedisServers::start(3)?;
    let redlock = blocking::Redlock::connect(servers.urls())?;
    let held = redlock.lock("held").acquire()?;
    let dropped = redlock.lock("dropped").acquire()?;
    let mut values = Some((redlock, held, dropped));
    in_child(|| {
        let (redlock, held, dropped) = values.take().unwrap();
        let refused = redlock.lock("other").wait_forever().acquire().unwrap_err();
        assert_eq!(refused, AcquireError::Invalid(FORKED));
        let extended = held.extend(Duration::from_secs(10));
        assert_eq!(extended, Err(ExtendError::Invalid(FORKED)));
        held.settled();
        assert!(matches!(held.lost(), Ended::Lost(_)));
        assert!(redlock.status("held").to_string().contains("after a fork"));
        drop(dropped);
        assert_eq!(held.release(), Err(ReleaseError::Invalid(FORKED)));
        drop(redlock);
    })?;
    let (redlock, held, dropped) = values.take().unwrap();
    for guard in [&held, &dropped] {
        guard.extend(Duration::from_secs(10))?;
    }
    redlock.lock("other").acquire()?.release()?;
    held.release()?;
    Ok(dropped.release()?)
}
