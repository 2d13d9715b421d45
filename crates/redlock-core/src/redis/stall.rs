//! `Stall`: how long the oldest request of a connection may be without an answer.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Sleep, sleep};

/// The timer for the oldest request without an answer, and whom it wakes.
pub(super) struct Stall {
    timer: Pin<Box<Sleep>>,
    waker: Option<Waker>,
}

impl Stall {
    pub(super) fn set(after: Duration) -> Self {
        Self { timer: Box::pin(sleep(after)), waker: None }
    }

    /// Returns ready if the time has run out, otherwise registers the task. A timer that already
    /// wakes this task is not polled again, because that would cost as much as reading a reply,
    /// each time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let wakes = self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if wakes && !self.timer.is_elapsed() {
            return Poll::Pending;
        }
        // Once the task has used up its share of the runtime, a constrained timer would forget its
        // waker.
        let polled = pin!(unconstrained(self.timer.as_mut())).poll(cx);
        self.waker = Some(cx.waker().clone());
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use tokio::task::coop::{consume_budget, has_budget_remaining};
    use tokio::task::yield_now;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn timer_wakes_the_last_polling_task_and_expires_for_all() {
        let (first, last) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        let mut stall = Stall::set(LIMIT);
        for woken in [&first, &first, &last, &last] {
            let waker = Waker::from(woken.clone());
            assert!(stall.poll(&mut Context::from_waker(&waker)).is_pending());
        }
        tokio::time::advance(LIMIT).await;
        sleep(Duration::ZERO).await;
        assert!(!first.0.load(Ordering::SeqCst) && last.0.load(Ordering::SeqCst));
        for woken in [last, first] {
            let waker = Waker::from(woken);
            assert!(stall.poll(&mut Context::from_waker(&waker)).is_ready());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn task_without_coop_budget_is_woken() {
        while has_budget_remaining() {
            consume_budget().await;
        }
        let (mut stall, woken) = (Stall::set(LIMIT), Arc::new(Woken::default()));
        let waker = Waker::from(woken.clone());
        assert!(stall.poll(&mut Context::from_waker(&waker)).is_pending());
        yield_now().await;
        assert!(!woken.0.load(Ordering::SeqCst), "there is nothing to do");
        tokio::time::advance(LIMIT).await;
        sleep(Duration::ZERO).await;
        assert!(woken.0.load(Ordering::SeqCst));
    }
}
