//! A web service that pays each order once, however many instances run and however often a
//! customer clicks: the order is locked by its id while it is being paid.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p orders`, then
//! `curl -X POST localhost:8080/orders/42/pay`; without `REDLOCK_NODES` it starts five throw-away
//! masters.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use redlock_quorum::{AcquireError, Redlock, RunError};
use redlock_testkit::RedisServers;

#[derive(Clone)]
struct Service {
    redlock: Redlock,
    /// Where a real service would have a database.
    paid: Arc<Mutex<HashSet<u64>>>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let throw_away;
    let redlock = if let Ok(nodes) = std::env::var("REDLOCK_NODES") {
        Redlock::connect(nodes.split(','))?
    } else {
        throw_away = RedisServers::start(5)?;
        Redlock::connect(throw_away.urls())?
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    println!("curl -X POST http://{}/orders/42/pay", listener.local_addr()?);
    axum::serve(listener, app(redlock)).await?;
    Ok(())
}

fn app(redlock: Redlock) -> Router {
    let service = Service { redlock, paid: Arc::default() };
    Router::new().route("/orders/{id}/pay", post(pay)).with_state(service)
}

/// A second click while the first is being worked on waits a little, and then finds the order
/// paid. What the lock cannot decide is reported as it is: busy, or not known.
async fn pay(State(service): State<Service>, Path(id): Path<u64>) -> (StatusCode, String) {
    let payment = service.redlock.lock(format!("orders:{id}")).wait(Duration::from_secs(2)).run(
        |hold| async move {
            if service.is_paid(id) {
                return Ok("paid already");
            }
            // Before money moves: is the lock still ours?
            hold.check()?;
            service.charge(id).await;
            Ok("paid")
        },
    );
    match payment.await {
        Ok(Ok(outcome)) => (StatusCode::OK, outcome.into()),
        Ok(Err(lost)) => (StatusCode::SERVICE_UNAVAILABLE, redlock_quorum::Lost::to_string(&lost)),
        Err(RunError::Acquire(error @ AcquireError::Held { .. })) => {
            (StatusCode::CONFLICT, error.to_string())
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

impl Service {
    fn is_paid(&self, id: u64) -> bool {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    async fn charge(&self, id: u64) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.paid.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    async fn click(app: Router, id: u64) -> (StatusCode, String) {
        let request = Request::post(format!("/orders/{id}/pay")).body(Body::empty()).unwrap();
        let response = app.oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 16).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn ten_clicks_pay_an_order_once() {
        let masters = RedisServers::start(5).unwrap();
        let app = app(Redlock::connect(masters.urls()).unwrap());
        let clicks: tokio::task::JoinSet<_> = (0..10).map(|_| click(app.clone(), 42)).collect();
        let answers = clicks.join_all().await;
        let paid = answers.iter().filter(|answer| **answer == (StatusCode::OK, "paid".into()));
        assert_eq!(paid.count(), 1, "{answers:?}");
        let again = (StatusCode::OK, "paid already".into());
        assert_eq!(answers.iter().filter(|answer| **answer == again).count(), 9, "{answers:?}");
    }

    #[tokio::test]
    async fn an_order_that_another_holds_is_a_conflict_and_no_quorum_is_not() {
        let masters = RedisServers::start(3).unwrap();
        let redlock = Redlock::connect(masters.urls()).unwrap();
        let guard = redlock.lock("orders:7").await.unwrap();
        let app = app(redlock);
        assert_eq!(click(app.clone(), 7).await.0, StatusCode::CONFLICT);
        guard.release().await.unwrap();
        masters[0].kill();
        masters[1].kill();
        assert_eq!(click(app, 7).await.0, StatusCode::SERVICE_UNAVAILABLE);
    }
}
