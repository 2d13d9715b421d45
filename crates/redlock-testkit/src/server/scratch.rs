//! Directories that are removed when their value is dropped.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context;

/// A new directory, removed with all in it on drop.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes a directory in `parent`, of a name that is not used there.
    pub(super) fn new(parent: &Path) -> anyhow::Result<Self> {
        loop {
            let directory = parent.join(format!("redlock-server-{:016x}", rand::random::<u64>()));
            match fs::create_dir(&directory) {
                Ok(()) => return Ok(Self(directory)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let place = directory.display().to_string();
                    return Err(error).context(format!("making a server's directory {place}"));
                }
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // There is no caller to report to, and a remaining directory does not affect later runs.
        let _ = fs::remove_dir_all(&self.0);
    }
}
