//! [`Watch`](crate::Watch) and [`Leaders`](crate::Leaders) for code that does not await.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::Stream;
use redlock_core::Resource;

use super::{Redlock, Worker};
use crate::status::Status;

impl Redlock {
    /// Returns an iterator over who holds `resource`. See [`crate::Redlock::watch`].
    pub fn watch(&self, resource: impl Into<Resource>) -> Watch {
        Watch(Changes::new(self.redlock.watch(resource), self.worker.clone()))
    }
}

/// An iterator over who holds a resource. See [`crate::Watch`]. Each call of `next` blocks until
/// the next change. It ends after [`Redlock::shutdown`].
#[must_use = "iterators do nothing unless used"]
pub struct Watch(Changes<crate::Watch>);

impl Iterator for Watch {
    type Item = Status;

    fn next(&mut self) -> Option<Status> {
        self.0.next()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.stream.fmt(f)
    }
}

/// A stream that the worker's thread polls.
pub(super) struct Changes<S> {
    /// `None` during a call of `next`, and after the end of the stream.
    pub(super) stream: Option<S>,
    worker: Arc<Worker>,
}

impl<S: Stream<Item: Send> + Unpin + Send + 'static> Changes<S> {
    pub(super) fn new(stream: S, worker: Arc<Worker>) -> Self {
        Self { stream: Some(stream), worker }
    }

    pub(super) fn next(&mut self) -> Option<S::Item> {
        let stream = self.stream.take()?;
        // The thread has exited because the handle was shut down.
        let (item, stream) = self.worker.wait(stream.into_future())?;
        self.stream = Some(stream).filter(|_| item.is_some());
        item
    }
}
