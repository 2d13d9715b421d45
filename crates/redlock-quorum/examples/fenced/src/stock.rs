//! `Stock`: a table that accepts no write of a holder whose lock is over. This is the part to copy.

use std::path::Path;
use std::time::Duration;

use redlock_quorum::FencingToken;
use rusqlite::{Connection, params};

/// How many there are of each item. `fence` is the largest fencing token that a row has seen.
pub(crate) struct Stock {
    db: Connection,
}

/// The reasons why the store did nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StockError {
    /// The lock with this token is over: another came after it and has read or written since.
    #[error("{item}: fencing token {token} is refused, a larger one was seen")]
    Refused { item: String, token: FencingToken },
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

impl Stock {
    pub(crate) fn open(file: &Path) -> rusqlite::Result<Self> {
        let db = Connection::open(file)?;
        db.busy_timeout(Duration::from_secs(5))?;
        db.execute_batch(
            "CREATE TABLE IF NOT EXISTS stock (
                 item TEXT PRIMARY KEY,
                 count INTEGER NOT NULL,
                 fence INTEGER NOT NULL DEFAULT 0
             ) STRICT",
        )?;
        Ok(Self { db })
    }

    /// Adds an item. An existing item stays unchanged.
    pub(crate) fn add(&self, item: &str, count: i64) -> rusqlite::Result<()> {
        let sql = "INSERT INTO stock (item, count) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        self.db.execute(sql, params![item, count]).map(drop)
    }

    /// Returns the count, for the holder with this token. The token is stored before the row is
    /// read, because otherwise a previous holder could still change the row afterwards.
    pub(crate) fn read(&self, item: &str, token: FencingToken) -> Result<i64, StockError> {
        let sql = "UPDATE stock SET fence = ?2 WHERE item = ?1 AND fence <= ?2";
        self.accepted(item, token, self.db.execute(sql, params![item, i64::from(token)])?)?;
        Ok(self.count(item)?)
    }

    /// Sets what there is. The token is tested and the row is written in one statement: between
    /// two statements another holder could come.
    pub(crate) fn write(
        &self,
        item: &str,
        count: i64,
        token: FencingToken,
    ) -> Result<(), StockError> {
        let sql = "UPDATE stock SET count = ?2, fence = ?3 WHERE item = ?1 AND fence <= ?3";
        self.accepted(item, token, self.db.execute(sql, params![item, count, i64::from(token)])?)
    }

    /// Returns an error if the statement has changed no row, because a larger token was seen.
    fn accepted(&self, item: &str, token: FencingToken, rows: usize) -> Result<(), StockError> {
        if rows == 0 {
            // Distinguishes a missing item from a refused token.
            self.count(item)?;
            return Err(StockError::Refused { item: item.to_owned(), token });
        }
        Ok(())
    }

    /// Returns the count, for callers that only look.
    pub(crate) fn count(&self, item: &str) -> rusqlite::Result<i64> {
        self.db.query_row("SELECT count FROM stock WHERE item = ?1", [item], |row| row.get(0))
    }

    /// Writes like a store that trusts its writers, to show the lost update.
    pub(crate) fn write_without_fence(&self, item: &str, count: i64) -> rusqlite::Result<()> {
        let sql = "UPDATE stock SET count = ?2 WHERE item = ?1";
        self.db.execute(sql, params![item, count]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stock() -> Stock {
        let stock = Stock::open(":memory:".as_ref()).unwrap();
        stock.add("nails", 100).unwrap();
        stock
    }

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    fn is_refused<T>(outcome: &Result<T, StockError>) -> bool {
        matches!(outcome, Err(StockError::Refused { .. }))
    }

    #[test]
    fn holder_can_read_and_write_repeatedly() {
        let stock = stock();
        for count in [90, 80, 70] {
            stock.write("nails", count, token(64)).unwrap();
            assert_eq!(stock.read("nails", token(64)).unwrap(), count);
        }
        stock.write("nails", 60, FencingToken::MAX).unwrap();
        assert_eq!(stock.count("nails").unwrap(), 60);
    }

    #[test]
    fn smaller_token_is_rejected_after_a_larger_one_has_written() {
        let stock = stock();
        stock.write("nails", 90, token(64)).unwrap();
        assert!(is_refused(&stock.write("nails", 70, token(63))));
        assert!(is_refused(&stock.read("nails", token(63))));
        assert_eq!(stock.read("nails", token(64)).unwrap(), 90, "and nothing was changed");
    }

    #[test]
    fn previous_holder_cannot_change_a_row_read_by_a_newer_one() {
        let stock = stock();
        assert_eq!(stock.read("nails", token(32)).unwrap(), 100);
        assert_eq!(stock.read("nails", token(64)).unwrap(), 100);
        assert!(is_refused(&stock.write("nails", 70, token(32))), "64 relies on its reading");
        stock.write("nails", 95, token(64)).unwrap();
        assert_eq!(stock.count("nails").unwrap(), 95);
    }

    #[test]
    fn missing_item_is_not_a_refusal() {
        let stock = stock();
        assert!(matches!(stock.read("screws", token(1)), Err(StockError::Sqlite(_))));
        assert!(matches!(stock.write("screws", 1, token(1)), Err(StockError::Sqlite(_))));
    }
}
