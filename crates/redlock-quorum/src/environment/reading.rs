//! Reading a file that a setting names.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use redlock_core::duration::spelled;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::settings::BuildError;

/// The most bytes that are read of a file. A bundle of all public CAs has a quarter of that.
const LARGEST: u64 = 1 << 20;
/// The longest time to the end of a pipe. Its writer may get the text from another machine.
const LONGEST: Duration = Duration::from_secs(10);

/// Returns the contents of a text file that is read only once, so it may be a pipe. A file without
/// an end is refused, so that no command hangs.
pub(super) fn contents(file: &Path) -> io::Result<Vec<u8>> {
    text_of(&open(file)?, LONGEST)
}

/// Returns the contents of a text file that is read again for each connection.
fn contents_again(file: &Path) -> io::Result<Vec<u8>> {
    let file = open(file)?;
    let kind = match file.metadata()?.file_type().is_fifo() {
        true => "a pipe",
        false if file.is_terminal() => "a terminal",
        false => return text_of(&file, LONGEST),
    };
    let why = format!("it is {kind}, but is read again for each connection; use a regular file");
    Err(io::Error::other(why))
}

/// Opens a file without waiting for the writer of a pipe.
fn open(file: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(file)
}

fn text_of(file: &File, limit: Duration) -> io::Result<Vec<u8>> {
    let text = bytes_of(file, limit)?;
    let refused = match text.len() as u64 > LARGEST {
        true => Some("it has more than 1 MiB, which is the limit"),
        false => of_another_encoding(&text),
    };
    refused.map_or(Ok(text), |why| Err(io::Error::other(why)))
}

/// Reads to the end, or one byte more than the limit.
fn bytes_of(file: &File, limit: Duration) -> io::Result<Vec<u8>> {
    let end = Instant::now() + limit;
    let mut bytes = Vec::new();
    loop {
        // A pipe that no process has opened for writing yet seems to be at its end.
        if !is_ready(file, end)? {
            let why = format!("it has no end after {}; check its writer", spelled(limit));
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
        match file.take(LARGEST + 1 - bytes.len() as u64).read_to_end(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return result.map(|_| bytes),
        }
    }
}

/// Waits for bytes or for the end of the file. Returns `false` if the time is over.
fn is_ready(file: &File, end: Instant) -> io::Result<bool> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

/// Returns `true` for a file that can be read only once.
pub fn is_pipe(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.file_type().is_fifo())
}

/// Returns the fault of a text that is not UTF-8 without a byte-order mark.
fn of_another_encoding(text: &[u8]) -> Option<&'static str> {
    match text {
        [0xef, 0xbb, 0xbf, ..] => {
            Some("it begins with a byte-order mark; save the file as UTF-8 without one")
        }
        // The byte-order mark of UTF-16, or one character in two bytes.
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..] => {
            Some("it is UTF-16 text; save it as UTF-8")
        }
        _ => None,
    }
}

/// Reads a file that is read only once.
pub(super) fn read(origin: &str, file: &Path) -> Result<Vec<u8>, BuildError> {
    contents(file).map_err(|error| unreadable(origin, file, &error))
}

/// Reads a file that is read again for each connection.
pub(super) fn read_again(origin: &str, file: &Path) -> Result<Vec<u8>, BuildError> {
    contents_again(file).map_err(|error| unreadable(origin, file, &error))
}

fn unreadable(origin: &str, file: &Path, error: &io::Error) -> BuildError {
    let why = format!("reading {}: {error}", shown(file));
    BuildError::Variable { name: origin.into(), why }
}

/// Reads a file with a secret for each connection. A name without a directory may be the secret
/// itself.
pub(super) fn read_secret(origin: &str, file: &Path) -> Result<Vec<u8>, BuildError> {
    let is_path = file.components().count() > 1;
    let refused = |error| {
        let why = match is_path {
            true => format!("reading {}: {error}", shown(file)),
            false => format!("reading ***: {error}; use the full path of the file"),
        };
        BuildError::Variable { name: origin.into(), why }
    };
    contents_again(file).map_err(refused)
}

/// Returns the name of a file. A URL in its place may contain a password, and a text in PEM may be
/// a private key.
pub(super) fn shown(file: &Path) -> String {
    let name = file.display().to_string();
    if name.contains("-----BEGIN") {
        "*** (it is the contents of a file, and must be its path)".into()
    } else if name.contains("://") || name.contains('@') {
        "*** (it looks like a URL, and must be the path of a file)".into()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;
    use std::thread;

    use super::*;

    #[test]
    fn other_encodings_are_named_without_showing_the_text() {
        let file = std::env::temp_dir().join(format!("redlock-utf16-{}", std::process::id()));
        std::fs::write(&file, "\u{feff}sesame\n").unwrap();
        let refused = read_secret("PASSWORD", &file).unwrap_err().to_string();
        assert!(refused.contains(": it begins with a byte-order mark; save the file"), "{refused}");
        assert!(!refused.contains("sesame"), "{refused}");
        let units = || "redis://h".encode_utf16();
        let little: Vec<u8> = units().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = units().flat_map(u16::to_be_bytes).collect();
        for text in [[&[0xff, 0xfe], &little[..]].concat(), little, big] {
            std::fs::write(&file, text).unwrap();
            let refused = read("REDLOCK_NODES_FILE", &file).unwrap_err().to_string();
            assert!(refused.ends_with("it is UTF-16 text; save it as UTF-8"), "{refused}");
        }
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let file = std::env::temp_dir().join(format!("redlock-endless-{}", std::process::id()));
        let refused = |file: &Path| {
            let secret = read_secret("PASSWORD", file).unwrap_err().to_string();
            let other = read("NODES", file).unwrap_err().to_string();
            assert_eq!(
                secret.split_once(": "),
                other.split_once(": ").map(|it| ("PASSWORD", it.1))
            );
            other
        };
        let said = refused(Path::new("/dev/zero"));
        assert_eq!(said, "NODES: reading /dev/zero: it has more than 1 MiB, which is the limit");
        File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert!(refused(&file).ends_with(": it has more than 1 MiB, which is the limit"));
        std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(read("NODES", &file).unwrap().len(), 1 << 20);
        std::fs::remove_file(&file).unwrap();
        assert!(refused(&std::env::temp_dir()).contains("Is a directory"));
        assert_eq!(read("NODES", Path::new("/dev/null")).unwrap(), b"");
    }

    /// A named pipe that goes away with the test.
    struct Pipe(PathBuf);

    impl Pipe {
        fn new(name: &str) -> Self {
            let file = std::env::temp_dir().join(format!("redlock-{name}-{}", std::process::id()));
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mkfifoat(rustix::fs::CWD, &file, mode).unwrap();
            Self(file)
        }

        /// Opens the pipe for writing as soon as it has a reader.
        fn write(&self, parts: &'static [&str]) -> thread::JoinHandle<()> {
            let file = self.0.clone();
            thread::spawn(move || {
                let mut pipe = OpenOptions::new().write(true).open(file).unwrap();
                parts.iter().for_each(|part| pipe.write_all(part.as_bytes()).unwrap());
            })
        }
    }

    impl Drop for Pipe {
        fn drop(&mut self) {
            std::fs::remove_file(&self.0).unwrap();
        }
    }

    #[test]
    fn pipe_is_read_to_its_end_if_that_comes_in_time() {
        let pipe = Pipe::new("pipe");
        let writer = pipe.write(&["redis://a\n", "redis://b"]);
        assert_eq!(read("NODES", &pipe.0).unwrap(), b"redis://a\nredis://b");
        writer.join().unwrap();

        let limit = Duration::from_millis(20);
        let late = || text_of(&open(&pipe.0).unwrap(), limit).unwrap_err();
        assert_eq!(late().to_string(), "it has no end after 20ms; check its writer");
        let mut open_end = OpenOptions::new().read(true).write(true).open(&pipe.0).unwrap();
        open_end.write_all(b"redis://a").unwrap();
        assert_eq!(late().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_pipe_is_refused_if_it_is_read_for_each_connection() {
        let pipe = Pipe::new("again");
        let why = "it is a pipe, but is read again for each connection; use a regular file";
        for refused in [read_again("CA", &pipe.0), read_secret("CA", &pipe.0)] {
            let said = format!("CA: reading {}: {why}", pipe.0.display());
            assert_eq!(refused.unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn url_used_as_a_file_name_is_not_shown() {
        for file in ["redis://me:sesame@h", "me:sesame@h", "redis://:sesame"] {
            let refused = read("REDLOCK_NODES_FILE", Path::new(file)).unwrap_err();
            let shown = format!("{refused} {refused:?}");
            assert!(!shown.contains("sesame") && shown.contains("path of a file"), "{shown}");
        }
        let key = "-----BEGIN PRIVATE KEY-----\nsesame\n-----END PRIVATE KEY-----";
        let refused = read("REDLOCK_TLS_KEY", Path::new(key)).unwrap_err().to_string();
        assert!(refused.contains("must be its path") && !refused.contains("sesame"), "{refused}");
        let refused = read("REDLOCK_NODES_FILE", Path::new("/none/here")).unwrap_err();
        assert!(refused.to_string().contains("/none/here"), "{refused}");
    }
}
