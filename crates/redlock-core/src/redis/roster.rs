//! `Roster`: which server process answers at which address.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Who is who among the masters of one handle: two addresses that lead to one process are one
/// master, and the second of them never counts.
///
/// First come, first served, and for good: an address keeps its process until it is seen with
/// another one, even while it is not reached. Otherwise a key held on one server could come to
/// count for two masters.
#[derive(Debug, Default)]
pub struct Roster {
    seen: Mutex<HashMap<String, String>>,
}

impl Roster {
    /// Enters that the process `run_id` answers at `name`.
    ///
    /// # Errors
    /// The name under which the same process is known already.
    pub(super) fn enter(&self, name: &str, run_id: &str) -> Result<(), String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let twin = seen.iter().find(|(other, known)| *known == run_id && *other != name);
        if let Some((twin, _)) = twin {
            return Err(twin.clone());
        }
        seen.insert(name.to_owned(), run_id.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_address_of_one_process_is_refused_by_the_name_of_the_first() {
        let roster = Roster::default();
        assert_eq!(roster.enter("a:1", "x"), Ok(()));
        assert_eq!(roster.enter("b:1", "x"), Err("a:1".into()));
        assert_eq!(roster.enter("a:1", "x"), Ok(()), "the first stays what it is");
    }

    #[test]
    fn a_process_is_free_again_once_its_address_shows_another() {
        let roster = Roster::default();
        assert_eq!(roster.enter("a:1", "x"), Ok(()));
        assert_eq!(roster.enter("a:1", "y"), Ok(()));
        assert_eq!(roster.enter("b:1", "x"), Ok(()));
    }
}
