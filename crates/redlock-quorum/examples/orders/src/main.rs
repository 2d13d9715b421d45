//! A web service that pays each order once, however many instances run and however often a
//! customer clicks: the order is locked by its id while it is being paid.
//!
//! On Ctrl-C or SIGTERM it takes no more requests, finishes those it has, and releases all locks
//! before it ends.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p orders`, then `curl -X POST
//! localhost:8080/orders/42/pay`. Without `REDLOCK_NODES`, it starts five disposable masters.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use redlock_quorum::{AcquireError, Redlock, RunError};
use redlock_testkit::RedisServers;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Clone)]
struct Service {
    redlock: Redlock,
    /// A real service would use a database.
    paid: Arc<Mutex<HashSet<u64>>>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let throw_away;
    let redlock = if std::env::var_os("REDLOCK_NODES").is_some() {
        Redlock::from_env()?
    } else {
        throw_away = RedisServers::start(5)?;
        Redlock::connect(throw_away.urls())?
    };
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    println!("curl -X POST http://{}/orders/42/pay", listener.local_addr()?);
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    };
    serve(listener, redlock, stop).await
}

/// Serves until `stop` resolves. Requests hold locks, so it finishes them first, and then waits for
/// unacknowledged releases.
async fn serve(
    listener: TcpListener,
    redlock: Redlock,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    axum::serve(listener, app(redlock.clone())).with_graceful_shutdown(stop).await?;
    redlock.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

fn app(redlock: Redlock) -> Router {
    let service = Service { redlock, paid: Arc::default() };
    Router::new().route("/orders/{id}/pay", post(pay)).with_state(service)
}

/// A second click during the payment waits a little, and then finds the order paid. If the lock
/// decides nothing, the service reports that as busy or unknown.
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
    use redlock_quorum::NodeVote;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
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
    async fn service_finishes_a_started_payment_before_it_stops() {
        let masters = RedisServers::start(3).unwrap();
        let redlock = Redlock::connect(masters.urls()).unwrap();
        // The payment waits for this lock, so it is under way when the service stops.
        let guard = redlock.lock("orders:9").await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let own = Redlock::connect(masters.urls()).unwrap();
        let service = tokio::spawn(serve(listener, own.clone(), async {
            let _ = stopped.await;
        }));
        let request = b"POST /orders/9/pay HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        while own.stats().waiting == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.send(()).unwrap();
        guard.release().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("paid"), "{answer}");
        service.await.unwrap().unwrap();
        // Long before a lease ends: nothing has to expire.
        let is_free = async {
            let free = |node: &NodeVote| node.verdict == redlock_quorum::Verdict::Free;
            while !redlock.status("orders:9").await.nodes.iter().all(free) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), is_free).await.unwrap();
    }

    #[tokio::test]
    async fn held_order_is_a_conflict_and_a_missing_quorum_is_not() {
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
