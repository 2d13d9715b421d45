//! Wall clocks of real servers, set by the test while the servers run.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use super::text;
use crate::{RedisServer, ServerOptions};

/// A wall clock for each of some servers. Their monotonic clocks are left alone.
///
/// It is a library that is compiled with `cc` and preloaded, so it needs Linux, and a server that
/// is linked dynamically, as most are.
#[derive(Debug)]
pub struct WallClocks {
    home: PathBuf,
}

impl WallClocks {
    /// Creates one clock per element of `ahead`, each ahead of our clock by that number of
    /// milliseconds.
    ///
    /// # Panics
    /// Panics if there is no `cc`, or if the files of the clocks cannot be written.
    pub fn new(ahead: &[i64]) -> Self {
        let name = format!("redlock-clocks-{:016x}", rand::random::<u64>());
        let clocks = Self { home: std::env::temp_dir().join(name) };
        fs::create_dir(&clocks.home).unwrap();
        clocks.compile();
        for (place, ahead) in ahead.iter().enumerate() {
            fs::write(clocks.file(place), ahead.to_ne_bytes()).unwrap();
        }
        clocks
    }

    /// Options of a server that goes by the clock at `place`.
    pub fn on(&self, place: usize, options: ServerOptions) -> ServerOptions {
        let variables = self.variables(place);
        variables.into_iter().fold(options, |options, (name, value)| options.variable(name, value))
    }

    /// Returns environment variables that make another program use the clock at `place`.
    pub fn variables(&self, place: usize) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.home.join(LIBRARY)), ("CLOCK_AHEAD", self.file(place))]
    }

    /// Sets by how many milliseconds the clock at `place` is ahead of ours.
    ///
    /// # Panics
    /// When there is none.
    pub fn set(&self, place: usize, ahead: i64) {
        // Servers have the file mapped: it must stay the same one, and as long as it is.
        let mut file = OpenOptions::new().write(true).open(self.file(place)).unwrap();
        file.write_all(&ahead.to_ne_bytes()).unwrap();
    }

    fn file(&self, place: usize) -> PathBuf {
        self.home.join(format!("clock-{place}"))
    }

    fn compile(&self) {
        let source = self.home.join("ahead.c");
        fs::write(&source, include_str!("clocks/ahead.c")).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(self.home.join(LIBRARY)).arg(source);
        assert!(cc.status().expect("cc on the PATH").success());
    }
}

impl Drop for WallClocks {
    fn drop(&mut self) {
        // If this fails, a folder of some kilobytes remains.
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Returns by how many milliseconds the wall clock of a server is ahead of ours, according to its
/// `TIME`.
///
/// # Panics
/// Panics if the server does not answer.
pub fn ahead(server: &RedisServer) -> i64 {
    let (secs, micros): (i64, i64) = text(server, &["TIME"]);
    let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    secs * 1_000 + micros / 1_000 - i64::try_from(ours).unwrap()
}

const LIBRARY: &str = "ahead.so";
