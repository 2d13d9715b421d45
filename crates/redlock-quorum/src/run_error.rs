//! `RunError`: why work under a lock has no output, or unprotected output.

use std::fmt;

use crate::error::AcquireError;
use crate::lost::Lost;
use crate::settings::InvalidRequest;

/// The error of [`LockRequest::run`](crate::LockRequest::run). `T` is the output of the work.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<T = ()> {
    /// The lock was not acquired, and the work did not start.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The lock was lost while the work was running.
    #[error("{lost}")]
    Lost {
        /// The cause, and each master's answer.
        #[source]
        lost: Lost,
        /// The output of work that finished after the loss, whose last part was not protected.
        /// `None` if the work was stopped before it finished.
        output: Option<T>,
    },
}

impl<T> RunError<T> {
    /// Converts the error of a step without output into the error of work with one.
    pub(crate) fn without_output<U>(self) -> RunError<U> {
        match self {
            Self::Acquire(error) => RunError::Acquire(error),
            Self::Lost { lost, .. } => RunError::Lost { lost, output: None },
        }
    }

    /// Flattens the outcome of work that can fail. The work's own error takes precedence.
    pub(crate) fn flat<E: From<Self>>(
        outcome: Result<Result<T, E>, RunError<Result<T, E>>>,
    ) -> Result<T, E> {
        match outcome {
            Ok(output) => output,
            Err(RunError::Acquire(error)) => Err(Self::Acquire(error).into()),
            Err(RunError::Lost { lost, output }) => {
                let output = output.transpose()?;
                Err(Self::Lost { lost, output }.into())
            }
        }
    }
}

/// An invalid option, because of which nothing was sent.
impl<T> From<InvalidRequest> for RunError<T> {
    fn from(invalid: InvalidRequest) -> Self {
        Self::Acquire(invalid.into())
    }
}

/// Omits the output, which need not be printable.
impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire(error) => f.debug_tuple("Acquire").field(error).finish(),
            Self::Lost { lost, output } => {
                let ended = output.is_some();
                f.debug_struct("Lost").field("lost", lost).field("ended", &ended).finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lost::LostReason;
    use crate::votes::Votes;

    #[derive(Debug, PartialEq)]
    enum Wrong {
        Lock(RunError<u32>),
        Work,
    }

    impl From<RunError<u32>> for Wrong {
        fn from(error: RunError<u32>) -> Self {
            Self::Lock(error)
        }
    }

    fn lost() -> Lost {
        let votes = Votes::new(Vec::new());
        Lost { resource: "k".into(), reason: LostReason::NotExtended, votes }
    }

    #[test]
    fn error_of_the_work_precedes_the_loss() {
        let flat = |outcome| RunError::<u32>::flat::<Wrong>(outcome);
        let after_loss = |output| Err(RunError::Lost { lost: lost(), output });
        assert_eq!(flat(Ok(Ok(7))), Ok(7));
        assert_eq!(flat(Ok(Err(Wrong::Work))), Err(Wrong::Work));
        assert_eq!(flat(after_loss(Some(Err(Wrong::Work)))), Err(Wrong::Work));
        for (output, inside) in [(Some(Ok(7)), Some(7)), (None, None)] {
            let expected = Wrong::Lock(RunError::Lost { lost: lost(), output: inside });
            assert_eq!(flat(after_loss(output)), Err(expected));
        }
        let closed = Wrong::Lock(RunError::Acquire(AcquireError::Shutdown));
        assert_eq!(flat(Err(RunError::Acquire(AcquireError::Shutdown))), Err(closed));
    }
}
