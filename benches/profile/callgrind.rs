//! What callgrind writes: the instructions of each line of source, by file.

use anyhow::{Context, ensure};

use crate::table::Counts;

/// Reads the costs of the lines themselves. The cost behind a call is that of what was called, and
/// stands where that is again.
pub fn read(text: &str) -> anyhow::Result<Counts> {
    let mut counts = Counts::default();
    let mut place = Place::default();
    let mut is_call = false;
    for line in text.lines() {
        match line.split_once('=') {
            Some(("ob", object)) => place.object = object,
            Some(("fl", file)) => (place.function, place.file) = (file, file),
            Some(("fi" | "fe", file)) => place.file = file,
            Some(("calls", _)) => is_call = true,
            None if line.starts_with(|first: char| first.is_ascii_digit()) => {
                let cost = line.split_whitespace().nth(1).context("a line without a cost")?;
                if !std::mem::take(&mut is_call) {
                    counts.add(&place.name(), cost.parse()?);
                }
            }
            _ => {}
        }
    }
    ensure!(!counts.is_empty(), "callgrind has counted nothing");
    Ok(counts)
}

/// Where an instruction comes from.
#[derive(Default)]
struct Place<'a> {
    object: &'a str,
    /// The file of the function.
    function: &'a str,
    /// That of the line, which may be of a function that was inlined.
    file: &'a str,
}

impl Place<'_> {
    /// The file of ours, or the package of another. What the standard library does in a function
    /// of ours counts for that.
    fn name(&self) -> String {
        let file = if is_std(self.file) { self.function } else { self.file };
        let behind = |mark: &'static str| file.split_once(mark).map(|(_, behind)| behind);
        if let Some(package) = behind("/registry/src/") {
            let package = package.split('/').nth(1).unwrap_or(package);
            return package.rsplit_once('-').map_or(package, |(name, _)| name).to_owned();
        }
        if is_std(file) {
            return "std".to_owned();
        }
        let ours = |mark: &'static str| behind(mark).map(|file| format!("{}{file}", &mark[1..]));
        ours("/crates/").or_else(|| ours("/benches/")).unwrap_or_else(|| self.library())
    }

    /// What has no source here, by the library that it is in.
    fn library(&self) -> String {
        let library = self.object.rsplit('/').next().unwrap_or(self.object);
        library.split('.').next().unwrap_or(library).to_owned()
    }
}

fn is_std(file: &str) -> bool {
    file.contains("/library/")
}
