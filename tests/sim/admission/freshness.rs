//! A handle that stays connected, and changes that no message reports.

use std::time::Duration;

use redlock_quorum::Init;
use redlock_testkit::SimNodes;
use tokio::time::{sleep, timeout};

use crate::admission::forgetting::{MAX_TTL, full, handle, masters, other};
use crate::arena::{RESOURCE, heal, ms, partition, trusting_handle};

/// Longer than a reading of a master is trusted.
const STALE: Duration = ms(80_000);
/// Longer than what a handle of these tests is given itself.
const RAISED: Duration = ms(8_000);

#[tokio::test(start_paused = true)]
async fn changed_max_ttl_is_noticed_without_a_new_connection() {
    let (masters, redlock) = masters(3);
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    let again = Init { again: true, ..Init::default() };
    let person = handle(&masters.another_client()).max_ttl(ms(400)).ttl(ms(200)).build().unwrap();
    person.init_with(again).await.unwrap();
    let long = async || redlock.try_lock(RESOURCE).ttl(MAX_TTL).await;
    long().await.unwrap().release().await.unwrap();
    sleep(STALE).await;
    let error = long().await.unwrap_err();
    assert!(error.to_string().contains("max_ttl (400ms)"), "{error}");
}

/// A lock that was taken after the change may be as long as the new one says.
#[tokio::test(start_paused = true)]
async fn quarantine_covers_a_recently_raised_max_ttl() {
    let (masters, redlock) = masters(3);
    redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    let person = handle(&masters.another_client()).max_ttl(RAISED).build().unwrap();
    person.init().await.unwrap();
    masters[0].crash_and_restart(false);
    assert_eq!(quarantine(&masters, 0).await, Some(8_000));
}

/// The reachable masters have lost their data.
#[tokio::test(start_paused = true)]
async fn quarantine_covers_the_max_ttl_of_an_unreachable_master() {
    let masters = SimNodes::new(3, 0);
    masters.init(RAISED);
    let redlock = handle(&masters).build().unwrap();
    full(&redlock, &masters).await.release().await.unwrap();
    partition(&masters[2..]);
    masters[0].crash_and_restart(false);
    masters[1].crash_and_restart(false);
    assert_eq!(quarantine(&masters, 0).await, Some(8_000));
}

/// The `max_ttl`, in ms, with which a quarantine is begun there.
async fn quarantine(masters: &SimNodes, master: usize) -> Option<u64> {
    let begun = async {
        loop {
            let record = masters[master].data().record;
            if record.quarantine.is_some() {
                return record.max_ttl;
            }
            sleep(ms(20)).await;
        }
    };
    timeout(ms(5_000), begun).await.unwrap()
}

/// A handle that was connected before others goes by the same time as they do.
#[tokio::test(start_paused = true)]
async fn ballot_time_is_refreshed_without_a_new_connection() {
    const HOUR_US: u64 = 3_600_000_000;
    let (masters, redlock) = masters(3);
    let fence = async || {
        let guard = redlock.try_lock(RESOURCE).await.unwrap();
        let token = guard.fencing_token().unwrap().get();
        guard.release().await.unwrap();
        token
    };
    let before = fence().await;
    masters.iter().for_each(|master| master.step_clock(3_600_000));
    assert!(fence().await < before + HOUR_US, "nothing has shown it so far");
    sleep(STALE).await;
    assert!(fence().await > before + HOUR_US);
}

#[tokio::test(start_paused = true)]
async fn deleted_ballots_are_noticed_without_a_new_connection() {
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    masters[0].edit_data(|data| data.sets.clear());
    sleep(STALE).await;
    assert_eq!(masters[0].data().members(), 1_024, "a quarantine has begun, and is over");
    assert_eq!((guard.copies(), guard.check()), (3, Ok(())));
    guard.release().await.unwrap();
}

/// It continues with its data until then, because one key excludes both kinds.
#[tokio::test(start_paused = true)]
async fn converted_prefix_is_noticed_without_a_new_connection() {
    let (masters, on) = masters(3);
    on.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
    let again = Init { again: true, ..Init::default() };
    let off = trusting_handle(&masters.another_client());
    let off = off.build().unwrap();
    off.init_with(again).await.unwrap();
    sleep(STALE).await;
    let error = on.try_lock(RESOURCE).await.unwrap_err();
    assert!(error.to_string().contains("other clients use this prefix without"), "{error}");
    other(&masters).init_with(again).await.unwrap();
    sleep(STALE).await;
    let error = off.try_lock(RESOURCE).await.unwrap_err();
    assert!(
        error.to_string().contains("other clients use this prefix with a quarantine"),
        "{error}"
    );
}

/// Events after which a handle reads the state of its masters.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Read {
    Nothing,
    NewConnection,
    /// The look after a push without a loss.
    Look,
}

/// The first look of a handle, 60 s after its first lock, would show it.
#[tokio::test(start_paused = true)]
async fn recently_probed_master_is_not_probed_again() {
    for read in [Read::Nothing, Read::NewConnection, Read::Look] {
        let (masters, redlock) = masters(3);
        redlock.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
        sleep(ms(50_000)).await;
        match read {
            Read::Nothing => {}
            Read::NewConnection => {
                partition(&masters);
                sleep(ms(1)).await;
                heal(&masters);
            }
            Read::Look => masters.iter().for_each(|master| {
                let data = master.data();
                master.flush();
                master.edit_data(|mine| *mine = data);
            }),
        }
        sleep(ms(5_000)).await;
        let person = handle(&masters.another_client()).max_ttl(ms(400)).ttl(ms(200));
        let again = Init { again: true, ..Init::default() };
        person.build().unwrap().init_with(again).await.unwrap();
        sleep(ms(6_000)).await;
        let long = redlock.try_lock(RESOURCE).ttl(MAX_TTL).await;
        assert_eq!(long.is_ok(), read != Read::Nothing, "{read:?}: {long:?}");
    }
}

/// When each of some handles that were made together learns that the masters' clocks were stepped,
/// in seconds.
#[tokio::test(start_paused = true)]
async fn handles_created_together_refresh_at_different_times() {
    let masters = masters(3).0;
    let made = (0..4).map(|seed| handle(&masters.another_client()).seed(seed).build().unwrap());
    let handles: Vec<_> = made.collect();
    let fence = async |nth: usize| {
        let guard = handles[nth].try_lock(format!("its own:{nth}")).await.unwrap();
        let token = guard.fencing_token().unwrap().get();
        guard.release().await.unwrap();
        token
    };
    let mut before = Vec::new();
    for nth in 0..handles.len() {
        before.push(fence(nth).await);
    }
    sleep(ms(70_000)).await;
    masters.iter().for_each(|master| master.step_clock(3_600_000));
    let mut learnt = vec![0; handles.len()];
    for second in 1..=80 {
        sleep(ms(1_000)).await;
        for nth in 0..handles.len() {
            if learnt[nth] == 0 && fence(nth).await > before[nth] + 3_600_000_000 {
                learnt[nth] = second;
            }
        }
    }
    let (first, last) = (learnt.iter().min().unwrap(), learnt.iter().max().unwrap());
    assert!(*first > 0 && last - first > 2, "{learnt:?}");
}
