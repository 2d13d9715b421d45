//! The output of callgrind: the instructions of each source line, by file.

use anyhow::{Context, ensure};

use crate::table::Counts;

/// Reads the costs of the lines themselves. The cost after a call belongs to the called function,
/// and is repeated there.
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

/// The source of an instruction.
#[derive(Default)]
struct Place<'a> {
    object: &'a str,
    /// The file of the function.
    function: &'a str,
    /// The file of the line, which may belong to an inlined function.
    file: &'a str,
}

impl Place<'_> {
    /// Returns our file, or the package of other code. The cost of the standard library in one of
    /// our functions belongs to that function.
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

    /// Returns the library of code without source.
    fn library(&self) -> String {
        let library = self.object.rsplit('/').next().unwrap_or(self.object);
        library.split('.').next().unwrap_or(library).to_owned()
    }
}

fn is_std(file: &str) -> bool {
    file.contains("/library/")
}
