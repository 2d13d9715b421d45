//! A lease that is serialized and deserialized, with the `serde` feature of the library. Needs no
//! server. (The test is here rather than in the library, because this package enables the feature
//! for every test run.)

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so what it expects")]

use std::time::Duration;

use redlock_core::Clock;
use redlock_quorum::{Lease, Redlock};
use redlock_testkit::SimNodes;

fn through_json(lease: &Lease) -> Lease {
    serde_json::from_str(&serde_json::to_string(lease).unwrap()).unwrap()
}

#[test]
fn lease_of_any_bytes_survives_a_round_trip() {
    let all: Vec<u8> = (0..=255).collect();
    let token = "6a6f8e0c-26b9-4a1e-9d9e-0c7d7f1b8a55/web-1:47";
    for name in [all, b"orders:42".to_vec(), vec![0], vec![0xff; 512]] {
        let lease = Lease::new(name, token, Duration::from_millis(30_001)).unwrap();
        assert_eq!(through_json(&lease), lease);
    }
}

#[test]
fn invalid_lease_is_refused() {
    let plain = |token: &str| {
        format!(r#"{{"resource":[97],"token":"{token}","ttl_ms":1,"validity_ms":0}}"#)
    };
    assert!(serde_json::from_str::<Lease>(&plain("token")).is_ok());
    let error = serde_json::from_str::<Lease>(&plain("two words")).unwrap_err().to_string();
    assert!(error.contains("1 to 256 printable characters"), "{error}");
    for bad in ["{}", "[]", r#"{"resource":[256],"token":"t","ttl_ms":1,"validity_ms":0}"#] {
        assert!(serde_json::from_str::<Lease>(bad).is_err(), "{bad}");
    }
}

#[tokio::test(start_paused = true)]
async fn serialized_lease_is_resumed() {
    let masters = SimNodes::new(5, 1);
    masters.init(Duration::from_secs(60));
    let handle = || {
        let builder = Redlock::builder().masters(masters.another_client().nodes());
        builder.clock(Clock::paused()).build().unwrap()
    };
    let lease = handle().lock(&b"a\xff\0"[..]).await.unwrap().into_lease();
    assert_eq!(lease.ttl, Duration::from_secs(10));
    assert_eq!(lease.validity, Duration::from_millis(9_898));
    let guard = handle().resume(through_json(&lease)).await.unwrap();
    assert_eq!(guard.resource(), &lease.resource);
    guard.release().await.unwrap();
}
