//! `Done`: the printed form of a mark.

use redlock_quorum::{LastRun, Mark};
use serde::Serialize;

use crate::fire;
use crate::moment;

/// The last run that was completed under a name, as `status` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Done {
    pub(crate) at_ms: u64,
    pub(crate) fire: Option<u64>,
    pub(crate) by: Option<String>,
}

impl Done {
    /// Returns the mark as text.
    pub(crate) fn text(&self) -> String {
        let Self { at_ms, fire, by } = self;
        let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let fire = fire.map(|fire| format!(", {}", fire::in_words(fire))).unwrap_or_default();
        let at = moment::date_and_time(moment::of_millis(*at_ms));
        format!("last run {at}{by}{fire}")
    }
}

impl From<&Mark> for Done {
    fn from(mark: &Mark) -> Self {
        let LastRun { fire, by, .. } = LastRun::from(mark);
        Self { at_ms: mark.at, fire, by }
    }
}
