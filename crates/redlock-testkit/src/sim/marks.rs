//! The handling of marks by a simulated master, like the scripts on a real one.

use redlock_core::{Answer, Cause, Instant, Mark, Marked, Op};

use super::master::Master;

impl Master {
    pub(super) fn read_mark(&self, now: Instant, op: &Op) -> Answer {
        let time = u64::try_from(self.clock.millis(now)).unwrap_or(0);
        match self.mark(op) {
            Ok(mark) => Answer::granted().with_marked(Marked { mark, time }),
            Err(error) => Answer::unknown(error),
        }
    }

    pub(super) fn raise_mark(&mut self, now: Instant, op: &Op, px: u64) -> Answer {
        let (had, Some(mark)) = (self.mark(op), op.mark()) else {
            return Answer::unknown(Cause::ErrorReply("ERR there is no mark".into()));
        };
        let px = px.max(self.left(now, op.key()));
        match had {
            Ok(had) => {
                let raised = had.map_or_else(|| mark.clone(), |had| had.raised(mark));
                self.put(now, op.key(), Some(raised.to_string().as_bytes()), px);
                Answer::granted()
            }
            Err(error) => Answer::unknown(error),
        }
    }

    /// Returns the mark of a key, or an error if the key is not a mark. In that case nothing is
    /// written.
    fn mark(&self, op: &Op) -> Result<Option<Mark>, Cause> {
        let error = |text: &str| Cause::ErrorReply(text.into());
        match self.value(op.key()) {
            None => Ok(None),
            Some(None) => Err(error("WRONGTYPE Operation against a key of another type")),
            Some(Some(value)) => {
                Mark::parse(value).map(Some).ok_or_else(|| error("ERR the mark is malformed"))
            }
        }
    }
}
