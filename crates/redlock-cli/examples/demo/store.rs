//! `Store`: a number in a file, which refuses the write of a holder whose lock is over.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;

use anyhow::{Context, Result};
use redlock_quorum::FencingToken;
use rustix::fs::{FlockOperation, flock};

/// A file with a number and the largest fencing token that it has seen. No two processes look at it
/// at one moment, so that a token is tested and the number written in one step.
pub(crate) struct Store(File);

/// The token was refused: a larger one was seen.
#[derive(Debug)]
pub(crate) struct Refused;

impl Store {
    pub(crate) fn create(path: &Path) -> Result<()> {
        std::fs::write(path, line(0, 0)).context("creating the store")
    }

    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        Ok(Self(file.context("opening the store")?))
    }

    /// Returns the number to the holder with this token. Stores the token first, so that no earlier
    /// holder can change the number afterwards.
    pub(crate) fn read(&mut self, token: FencingToken) -> Result<Result<u64, Refused>> {
        self.step(token, |number| number)
    }

    /// Sets the number.
    pub(crate) fn write(
        &mut self,
        number: u64,
        token: FencingToken,
    ) -> Result<Result<(), Refused>> {
        Ok(self.step(token, |_| number)?.map(drop))
    }

    /// The number, read without a token.
    pub(crate) fn number(&mut self) -> Result<u64> {
        Ok(self.content()?.0)
    }

    /// Tests the token, and writes the number that `next` returns, under an exclusive lock on the
    /// file.
    fn step(
        &mut self,
        token: FencingToken,
        next: impl FnOnce(u64) -> u64,
    ) -> Result<Result<u64, Refused>> {
        flock(&self.0, FlockOperation::LockExclusive)?;
        let outcome = self.content().and_then(|(number, fence)| {
            if token.get() < fence {
                return Ok(Err(Refused));
            }
            let number = next(number);
            self.0.rewind()?;
            self.0.write_all(line(number, token.get()).as_bytes())?;
            Ok(Ok(number))
        });
        flock(&self.0, FlockOperation::Unlock)?;
        outcome
    }

    fn content(&mut self) -> Result<(u64, u64)> {
        let mut text = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut text)?;
        let (number, fence) = text.split_once(',').context("the store is no store")?;
        Ok((number.trim().parse()?, fence.trim().parse()?))
    }
}

/// Returns a line of constant length, so that a write overwrites the whole previous line.
fn line(number: u64, fence: u64) -> String {
    format!("{number:>20},{fence:>20}\n")
}
