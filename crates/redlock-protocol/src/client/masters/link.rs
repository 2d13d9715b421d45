//! The connection to one master.

use redlock_core::admission::Identity;
use redlock_core::{Cause, Facts, Instant, NotAdmitted, Unread, WhyNot};

use crate::meeting_point::Weight;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) state: State,
    /// A previous connection may still execute requests: the server did not let us end it.
    pub(super) lacks_barrier: bool,
    /// The log has the warning that the server does not report changes of keys.
    pub(super) is_known_mute: bool,
    /// The log has the warning that the server keeps no queue for us.
    pub(super) is_unqueued: bool,
    /// Its last answer showed an obstacle that waiting does not remove.
    pub(super) is_incurable: bool,
    /// The node knows that a new connection is urgent.
    pub(super) is_urgent: bool,
    /// The facts of the server on the present connection.
    pub(super) facts: Option<Facts>,
    /// How much its process is preferred as a meeting point.
    pub(super) weight: Weight,
    /// When these facts were read.
    pub(super) read_at: Instant,
    /// Since when it is in its present incarnation. While it votes, answers to later requests are
    /// valid.
    pub(super) alive_since: Instant,
    /// The identity that the node was given as the admitted one.
    pub(super) admitted_as: Option<Identity>,
    /// A required property that the master lacks, as its connection has shown. Waiting does not
    /// change it.
    pub(super) unfit: Option<NotAdmitted>,
    /// The server's error in answer to the last step towards its admission, if any.
    pub(super) step_failure: Option<StepFailure>,
    /// End of the time in which it is not a meeting point because it was slow or did not answer.
    pub(super) suspect_until: Instant,
    /// It has not answered any request since it was found to be slow.
    pub(super) is_silent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// The first connection is being made.
    Connecting,
    Up,
    Down(Cause),
    /// The connection broke at this instant for this reason, and is being made again.
    Reviving(Instant, Cause),
}

/// The obstacle to the admission of a master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct StepFailure {
    pub(super) error: String,
    /// When the server reported it.
    pub(super) at: Instant,
}

impl Link {
    pub(super) fn new() -> Self {
        Self {
            state: State::Connecting,
            lacks_barrier: false,
            is_known_mute: false,
            is_unqueued: false,
            is_incurable: false,
            is_urgent: false,
            facts: None,
            weight: Weight::default(),
            read_at: Instant::ORIGIN,
            alive_since: Instant::ORIGIN,
            admitted_as: None,
            unfit: None,
            step_failure: None,
            suspect_until: Instant::ORIGIN,
            is_silent: false,
        }
    }

    /// Decides whether a new connection is urgent. Returns `true` if that has changed.
    pub(super) fn urge(&mut self, is_holding: bool) -> bool {
        let is_urgent = is_holding && self.state != State::Up;
        std::mem::replace(&mut self.is_urgent, is_urgent) != is_urgent
    }
}

impl State {
    /// Returns why there is no connection.
    pub(super) fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Down(cause) | Self::Reviving(_, cause) => Some(cause),
            Self::Connecting | Self::Up => None,
        }
    }
}

impl StepFailure {
    /// Returns why the facts that decide whether a server may vote cannot be read.
    pub(super) fn of(facts: &Facts, at: Instant) -> Option<Self> {
        let error = match &facts.record {
            Ok(_) | Err(Unread::NotAsked | Unread::Loading) if facts.identity.is_some() => {
                return None;
            }
            Ok(_) | Err(Unread::NotAsked | Unread::Loading) => {
                "its run_id is not 40 hex digits".into()
            }
            Err(unread) => unread.to_string(),
        };
        Some(Self { error, at })
    }
}

/// Returns the property that a client needs of each master besides an admission, and this server
/// lacks.
pub(super) fn unmet(fencing: bool, has_quarantine: bool, facts: &Facts) -> Option<NotAdmitted> {
    if fencing {
        // A missing member of a ballot set shows a loss of data as well.
        return facts.no_ballots.as_ref().map(|error| {
            let mut why = NotAdmitted::new(WhyNot::NoBallots);
            why.step_error = Some(error.clone());
            why
        });
    }
    // Only its reports show a loss of data. Without a quarantine, a master that may have lost its
    // data votes anyway.
    (has_quarantine && !facts.tracks).then(|| NotAdmitted::new(WhyNot::ReportsNoLoss))
}
