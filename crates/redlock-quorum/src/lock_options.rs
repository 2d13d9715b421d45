//! The options of a [`LockRequest`](crate::LockRequest), for the requests that contain one.

/// Adds the options of a lock to `$Request`, passed on to the request in its field `$inner`. The
/// documentation of `$Request` describes options with another meaning.
macro_rules! lock_options {
    ($Request:ty, $inner:ident) => {
        /// The options of [`LockRequest`](crate::LockRequest).
        impl $Request {
            /// Sets how long the lock lasts without being extended. See
            /// [`LockRequest::ttl`](crate::LockRequest::ttl).
            pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
                self.$inner = self.$inner.ttl(ttl);
                self
            }

            /// Sets how long to keep trying. See [`LockRequest::wait`](crate::LockRequest::wait).
            pub fn wait(mut self, wait: std::time::Duration) -> Self {
                self.$inner = self.$inner.wait(wait);
                self
            }

            /// Keeps trying until this instant. See
            /// [`LockRequest::wait_until`](crate::LockRequest::wait_until).
            pub fn wait_until(mut self, instant: std::time::Instant) -> Self {
                self.$inner = self.$inner.wait_until(instant);
                self
            }

            /// Keeps trying without limit. See
            /// [`LockRequest::wait_forever`](crate::LockRequest::wait_forever).
            pub fn wait_forever(mut self) -> Self {
                self.$inner = self.$inner.wait_forever();
                self
            }

            /// Sets whether the lock is extended while its guard exists. See
            /// [`LockRequest::auto_extend`](crate::LockRequest::auto_extend).
            pub fn auto_extend(mut self, auto_extend: bool) -> Self {
                self.$inner = self.$inner.auto_extend(auto_extend);
                self
            }

            /// Stops extending the lock after this time. See
            /// [`LockRequest::max_hold`](crate::LockRequest::max_hold).
            pub fn max_hold(mut self, max_hold: std::time::Duration) -> Self {
                self.$inner = self.$inner.max_hold(max_hold);
                self
            }

            /// Sets how many masters should hold the key. See
            /// [`LockRequest::min_copies`](crate::LockRequest::min_copies).
            pub fn min_copies(mut self, copies: usize) -> Self {
                self.$inner = self.$inner.min_copies(copies);
                self
            }

            /// Moves the deadline before the end of the lease. See
            /// [`LockRequest::stop_margin`](crate::LockRequest::stop_margin).
            pub fn stop_margin(mut self, margin: std::time::Duration) -> Self {
                self.$inner = self.$inner.stop_margin(margin);
                self
            }

            /// Adds this label to the token. See [`LockRequest::label`](crate::LockRequest::label).
            pub fn label(mut self, label: impl Into<String>) -> Self {
                self.$inner = self.$inner.label(label);
                self
            }

            /// Adds no label to the token. See
            /// [`LockRequest::no_label`](crate::LockRequest::no_label).
            pub fn no_label(mut self) -> Self {
                self.$inner = self.$inner.no_label();
                self
            }
        }
    };
}

pub(crate) use lock_options;
