//! The output of DHAT: the blocks allocated at each place, with their call stacks.

use anyhow::Context;
use serde::Deserialize;

use crate::table::Counts;

#[derive(Deserialize)]
struct Heap {
    pps: Vec<Point>,
    ftbl: Vec<String>,
}

/// A place that allocates.
#[derive(Deserialize)]
struct Point {
    /// How many blocks.
    tbk: u64,
    /// The frames that led there, the innermost first.
    fs: Vec<usize>,
}

pub fn read(text: &str) -> anyhow::Result<Counts> {
    let heap: Heap = serde_json::from_str(text).context("not DHAT's")?;
    let mut counts = Counts::default();
    for point in &heap.pps {
        let mut frames = point.fs.iter().filter_map(|frame| heap.ftbl.get(*frame));
        let ours = frames.find_map(|frame| function(frame)).unwrap_or("elsewhere");
        counts.add(ours, point.tbk as f64);
    }
    Ok(counts)
}

/// The function of a frame, which is "address: function (file:line)"; `None` if the file is not ours.
fn function(frame: &str) -> Option<&str> {
    let (_, behind) = frame.split_once(": ")?;
    let name = behind.rsplit_once(" (").map_or(behind, |(name, _)| name);
    let is_ours = ["redlock_", "<redlock_", "profile::", "<profile::"];
    is_ours.iter().any(|ours| name.starts_with(ours)).then_some(name)
}
