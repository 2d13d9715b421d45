//! `Reply` and `Awaited`: the two ends of an answer of the driver to one caller.
//!
//! Both ends, and the id of what the driver has entered for the caller, are one allocation. Nothing
//! is woken or dropped under its lock.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redlock_protocol::client::table::Id;

use redlock_protocol::client::ids::RequestId;

/// The driver's end. Dropping it without an answer ends the caller's wait.
pub(crate) struct Reply<T>(Option<Arc<Shared<T>>>);

/// The caller's end: resolves to the answer, or to `None` if none will come. Dropping it earlier
/// withdraws the request, if it can be withdrawn.
pub(crate) struct Awaited<'a, T: Send + 'static> {
    shared: Option<Arc<Shared<T>>>,
    /// The receiver of the withdrawal.
    withdraws_at: Option<&'a dyn Withdrawals>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    entry: AtomicU64,
}

enum State<T> {
    /// There is no answer yet.
    Open(Option<Waker>),
    Answered(T),
    /// The answer was taken, or will not come.
    Over,
    /// The caller no longer waits for it.
    Left,
}

/// The id under which the driver has entered a request. A caller that gives up returns it, so that
/// the driver need not search. Only the driver reads it.
pub(crate) trait Entered: Send + Sync {
    /// The id. The null id if it was never set.
    fn get(&self) -> RequestId;
}

/// The receiver of withdrawn requests.
pub(crate) trait Withdrawals: Sync {
    /// The caller of this request has stopped waiting.
    fn withdraw(&self, entry: Arc<dyn Entered>);
}

/// Creates both ends of an answer. `withdraws_at` receives the withdrawal if the caller stops
/// waiting.
pub(crate) fn reply<T: Send + 'static>(
    withdraws_at: Option<&dyn Withdrawals>,
) -> (Reply<T>, Awaited<'_, T>) {
    let (state, entry) = (Mutex::new(State::Open(None)), AtomicU64::default());
    let shared = Arc::new(Shared { state, entry });
    (Reply(Some(shared.clone())), Awaited { shared: Some(shared), withdraws_at })
}

impl<T> Reply<T> {
    /// Sends the answer. Returns it if the caller no longer waits for it.
    pub(crate) fn send(mut self, answer: T) -> Result<(), T> {
        let Some(shared) = self.0.take() else { return Err(answer) };
        let mut state = shared.state();
        let State::Open(waker) = &mut *state else { return Err(answer) };
        let waker = waker.take();
        *state = State::Answered(answer);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Returns `true` if the caller no longer waits for the answer.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.as_ref().is_none_or(|shared| matches!(*shared.state(), State::Left))
    }

    /// The driver has entered the request under this id.
    pub(super) fn enter(&self, id: RequestId) {
        if let Some(shared) = &self.0 {
            shared.entry.store(id.number(), Ordering::Relaxed);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let Some(shared) = self.0.take() else { return };
        let mut state = shared.state();
        if let State::Open(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Over;
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl<T: Send + 'static> Future for Awaited<'_, T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(shared) = &self.shared else { return Poll::Ready(None) };
        let mut state = shared.state();
        if let State::Open(waker) = &mut *state {
            let is_known = waker.as_ref().is_some_and(|known| known.will_wake(cx.waker()));
            let former = if is_known { None } else { waker.replace(cx.waker().clone()) };
            drop(state);
            drop(former);
            return Poll::Pending;
        }
        let answer = match std::mem::replace(&mut *state, State::Over) {
            State::Answered(answer) => Some(answer),
            _ => None,
        };
        drop(state);
        self.shared = None;
        Poll::Ready(answer)
    }
}

impl<T: Send + 'static> Drop for Awaited<'_, T> {
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else { return };
        // An answer that has just arrived is dropped after unlocking.
        let left = std::mem::replace(&mut *shared.state(), State::Left);
        drop(left);
        if let Some(withdrawals) = self.withdraws_at {
            withdrawals.withdraw(shared);
        }
    }
}

impl<T> Shared<T> {
    /// No code that holds this lock can panic half-way through a change.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static> Entered for Shared<T> {
    fn get(&self) -> RequestId {
        RequestId::of_number(self.entry.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use redlock_protocol::client::table::Table;

    use super::*;

    fn poll<T: Send + 'static>(awaited: &mut Awaited<'_, T>) -> Poll<Option<T>> {
        pin!(awaited).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_answer_is_taken_once() {
        let (reply, mut awaited) = reply(None);
        assert_eq!(poll(&mut awaited), Poll::Pending);
        assert_eq!(reply.send(7), Ok(()));
        assert_eq!(poll(&mut awaited), Poll::Ready(Some(7)));
        assert_eq!(poll(&mut awaited), Poll::Ready(None));
    }

    #[test]
    fn dropped_reply_ends_the_wait() {
        let (reply, mut awaited) = reply::<u32>(None);
        drop(reply);
        assert_eq!(poll(&mut awaited), Poll::Ready(None));
    }

    #[test]
    fn unawaited_answer_is_returned_to_the_sender() {
        let (reply, awaited) = reply(None);
        assert!(!reply.is_closed());
        drop(awaited);
        assert!(reply.is_closed());
        assert_eq!(reply.send(7), Err(7));
    }

    #[test]
    fn untaken_answer_is_dropped_with_its_caller() {
        let (reply, awaited) = reply(None);
        let answer = Arc::new(());
        assert!(reply.send(answer.clone()).is_ok());
        drop(awaited);
        assert_eq!(Arc::strong_count(&answer), 1);
    }

    #[test]
    fn last_registered_waker_is_woken() {
        struct Woken(AtomicU64);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        for is_answered in [true, false] {
            let (reply, mut awaited) = reply(None);
            let woken = [(); 2].map(|()| Arc::new(Woken(AtomicU64::default())));
            for one in &woken {
                let waker = Waker::from(one.clone());
                assert!(pin!(&mut awaited).poll(&mut Context::from_waker(&waker)).is_pending());
            }
            if is_answered {
                assert_eq!(reply.send(7), Ok(()));
            } else {
                drop(reply);
            }
            assert_eq!(woken.each_ref().map(|one| one.0.load(Ordering::Relaxed)), [0, 1]);
        }
    }

    #[test]
    fn entered_id_is_the_id_of_the_request() {
        let mut requests = Table::<RequestId, ()>::default();
        let id = requests.insert(());
        let (reply, awaited) = reply::<()>(None);
        let shared = awaited.shared.as_ref().unwrap();
        assert!(!requests.contains(shared.get()), "an unset value has no owner");
        reply.enter(id);
        assert_eq!(shared.get(), id);
    }
}
