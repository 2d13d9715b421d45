//! Reading a file that a setting names.

use std::fmt::Display;
use std::path::Path;

use crate::settings::BuildError;

pub(super) fn read(origin: &str, file: &Path) -> Result<Vec<u8>, BuildError> {
    let refused = |error: &dyn Display| {
        let why = format!("reading {}: {error}", shown(file));
        BuildError::Variable { name: origin.into(), why }
    };
    let text = std::fs::read(file).map_err(|error| refused(&error))?;
    if is_utf16(&text) {
        return Err(refused(&"it is UTF-16 text; save it as UTF-8"));
    }
    Ok(text)
}

/// Returns `true` if the file begins with the byte-order mark of UTF-16, or with one character in
/// two bytes.
fn is_utf16(text: &[u8]) -> bool {
    matches!(text, [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..])
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
    std::fs::read(file).map_err(refused)
}

/// Returns the name of an unreadable file for an error. A URL in its place may contain a password.
fn shown(file: &Path) -> String {
    let name = file.display().to_string();
    match name.contains("://") || name.contains('@') {
        true => "*** (it looks like a URL, and must be the path of a file)".into(),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_utf16_is_named_as_such() {
        let file = std::env::temp_dir().join(format!("redlock-utf16-{}", std::process::id()));
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
    fn a_url_in_the_place_of_a_file_is_not_shown() {
        for file in ["redis://me:sesame@h", "me:sesame@h", "redis://:sesame"] {
            let refused = read("REDLOCK_NODES_FILE", Path::new(file)).unwrap_err();
            let shown = format!("{refused} {refused:?}");
            assert!(!shown.contains("sesame") && shown.contains("path of a file"), "{shown}");
        }
        let refused = read("REDLOCK_NODES_FILE", Path::new("/none/here")).unwrap_err();
        assert!(refused.to_string().contains("/none/here"), "{refused}");
    }
}
