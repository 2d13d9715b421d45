//! Reading a file that a setting names.

use std::path::Path;

use crate::settings::BuildError;

pub(super) fn read(origin: &str, file: &Path) -> Result<Vec<u8>, BuildError> {
    let refused = |error| {
        let why = format!("reading {}: {error}", shown(file));
        BuildError::Variable { name: origin.into(), why }
    };
    std::fs::read(file).map_err(refused)
}

/// The same for a file with a secret. A name without a directory may be the secret itself.
pub(super) fn read_secret(origin: &str, file: &Path) -> Result<Vec<u8>, BuildError> {
    let is_path = file.components().count() > 1;
    let refused = |error| {
        let why = match is_path {
            true => format!("reading {}: {error}", shown(file)),
            false => format!("reading ***: {error}; name the file by its full path"),
        };
        BuildError::Variable { name: origin.into(), why }
    };
    std::fs::read(file).map_err(refused)
}

/// The name of a file that cannot be read. A URL in its place may contain a password.
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
