//! Reading a file that a setting names.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::settings::BuildError;

/// The most bytes that are read of a file. A bundle of all public CAs has a quarter of that.
const LARGEST: u64 = 1 << 20;

/// Returns the contents of a text file. A file without an end is refused, so that no command hangs.
pub(super) fn contents(file: &Path) -> io::Result<Vec<u8>> {
    // Otherwise the call would wait for a process that writes into a pipe.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    if file.metadata()?.file_type().is_fifo() {
        let why = "it is a pipe, and must be a file that can be read more than once";
        return Err(io::Error::other(why));
    }
    let mut text = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut text)?;
    let refused = match text.len() as u64 > LARGEST {
        true => Some("it has more than 1 MiB, which is the limit"),
        false => of_another_encoding(&text),
    };
    refused.map_or(Ok(text), |why| Err(io::Error::other(why)))
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

pub(super) fn read(origin: &str, file: &Path) -> Result<Vec<u8>, BuildError> {
    contents(file).map_err(|error| {
        let why = format!("reading {}: {error}", shown(file));
        BuildError::Variable { name: origin.into(), why }
    })
}

/// Reads a file with a secret. A name without a directory may be the secret itself.
pub(super) fn read_secret(origin: &str, file: &Path) -> Result<Vec<u8>, BuildError> {
    let is_path = file.components().count() > 1;
    let refused = |error| {
        let why = match is_path {
            true => format!("reading {}: {error}", shown(file)),
            false => format!("reading ***: {error}; use the full path of the file"),
        };
        BuildError::Variable { name: origin.into(), why }
    };
    contents(file).map_err(refused)
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
        std::fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert!(refused(&file).ends_with(": it has more than 1 MiB, which is the limit"));
        std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(read("NODES", &file).unwrap().len(), 1 << 20);
        std::fs::remove_file(&file).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &file, mode).unwrap();
        let said = refused(&file);
        assert!(said.ends_with("it is a pipe, and must be a file that can be read more than once"));
        std::fs::remove_file(&file).unwrap();
        assert!(refused(&std::env::temp_dir()).contains("Is a directory"));
        assert_eq!(read("NODES", Path::new("/dev/null")).unwrap(), b"");
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
