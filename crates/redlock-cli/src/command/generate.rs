//! `redlock generate`: the files that packages install with the command.

use crate::args::Generated;
use crate::definition::definition;
use crate::exit::{CANNOT_PRINT, Failure};
use crate::output;

pub(crate) fn generate(what: &Generated) -> Result<u8, Failure> {
    let mut text = Vec::new();
    match what {
        Generated::Man { command } => {
            let page = clap_mangen::Man::new(with_usage(subject(command.as_deref())?));
            page.render(&mut text).map_err(|error| Failure::new(CANNOT_PRINT, error))?;
        }
        Generated::Completions { shell } => {
            clap_complete::generate(*shell, &mut definition(), "redlock", &mut text);
        }
    }
    output::program(String::from_utf8_lossy(&text).trim_end())?;
    Ok(0)
}

/// Returns the command with the usage line of its help. Otherwise a man page would list all options
/// without their values, which is not a valid command line.
fn with_usage(mut command: clap::Command) -> clap::Command {
    let usage = command.render_usage().to_string();
    let lines = usage.trim_start_matches("Usage: ").lines().map(str::trim_start);
    let usage = lines.collect::<Vec<_>>().join("\n");
    command.override_usage(usage)
}

/// Returns the whole command, or the named subcommand under its full name.
fn subject(command: Option<&str>) -> Result<clap::Command, Failure> {
    let mut whole = definition();
    whole.build();
    let Some(name) = command else { return Ok(whole) };
    let found = whole.find_subcommand(name).cloned();
    found.ok_or_else(|| Failure::usage(anyhow::anyhow!("there is no command {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synopsis(command: Option<&str>) -> String {
        let mut page = Vec::new();
        let man = clap_mangen::Man::new(with_usage(subject(command).unwrap()));
        man.render_synopsis_section(&mut page).unwrap();
        String::from_utf8(page).unwrap()
    }

    #[test]
    fn synopsis_of_each_page_can_be_typed() {
        assert!(
            synopsis(None).contains(r"\fBredlock\fR [OPTIONS] <COMMAND>"),
            "{}",
            synopsis(None)
        );
        for command in definition().get_subcommands() {
            let (name, text) = (command.get_name(), synopsis(Some(command.get_name())));
            assert!(text.contains(&format!("redlock {name}")), "{text}");
            assert!(!text.contains(r"\-\-node"), "{text}");
        }
    }
}
