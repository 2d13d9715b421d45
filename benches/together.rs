//! The tables of all benches as one text, for `docs/BENCHMARKS.md`. It measures nothing.

mod support;

use std::fs;

use support::stats::folder;

const BENCHES: [&str; 6] = ["acquire", "throughput", "fenced", "degraded", "round trips", "hold"];

fn main() -> anyhow::Result<()> {
    let folder = folder()?;
    let mut text = String::new();
    for bench in BENCHES {
        // A bench that was left out this time has no table.
        if let Ok(table) = fs::read_to_string(folder.join(format!("{bench}.md"))) {
            text += &table;
            text.push('\n');
        }
    }
    fs::write(folder.join("table.md"), &text)?;
    print!("{text}");
    println!("The tables and the pictures are in {}", folder.display());
    Ok(())
}
