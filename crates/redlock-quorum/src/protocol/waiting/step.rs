//! `Step`: what is to be done for the head; `Ask` and `Refusal`: what it asks for, and how it
//! fails.

/// Which masters an attempt asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// All at once.
    All,
    /// The meeting point, and the others when it has granted.
    MeetingPointFirst,
}

/// What is to be done for the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<Id> {
    /// Nothing, before something happens or the time of [`Waiting::due`](super::Waiting::due) has
    /// come.
    Wait,
    /// An attempt is to be made for this caller.
    Attempt(Id, Ask),
    /// The meeting point is to be asked who holds the key, and to report its next change.
    Look,
}

/// How an attempt was lost, as far as waiting is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another holds the key.
    Held,
    /// Contenders have shared the masters among themselves: none has a quorum.
    Split,
    /// Too few masters have answered.
    Silent,
}
