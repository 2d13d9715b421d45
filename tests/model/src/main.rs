//! Exhausts the large bounds, and prints states, depth and time of each part.

use std::process::ExitCode;

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut failed = false;
    for broken in model::Broken::ALL.into_iter().chain(model::Broken::SECOND_LINES) {
        if !wanted.iter().any(|name| *name == format!("{broken:?}") || name == "mutants") {
            continue;
        }
        let outcome = model::check(&model::named(broken));
        println!("{broken:?}: {} states, {:.1} s", outcome.states, outcome.time.as_secs_f64());
        if let Some((property, story)) = outcome.story {
            println!("  {property}");
            for line in story { println!("  {line}"); }
        }
    }
    for part in model::large() {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == part.name) {
            continue;
        }
        let outcome = model::check(&part);
        println!(
            "{:12} {:>12} states, depth {:>3}, {:>7.1} s",
            part.name, outcome.states, outcome.depth, outcome.time.as_secs_f64()
        );
        if let Some((property, story)) = outcome.story {
            failed = true;
            println!("does not hold: {property}");
            for line in story {
                println!("  {line}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
