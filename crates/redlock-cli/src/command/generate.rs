//! `redlock generate`: what packages install beside the command.

use crate::args::Generated;
use crate::exit::{CANNOT_PRINT, Failure};
use crate::output;
use crate::usage::definition;

pub(crate) fn generate(what: &Generated) -> Result<u8, Failure> {
    let mut text = Vec::new();
    match what {
        Generated::Man { command } => {
            let page = clap_mangen::Man::new(subject(command.as_deref())?);
            page.render(&mut text).map_err(|error| Failure::new(CANNOT_PRINT, error))?;
        }
        Generated::Completions { shell } => {
            clap_complete::generate(*shell, &mut definition(), "redlock", &mut text);
        }
    }
    output::line(String::from_utf8_lossy(&text).trim_end())?;
    Ok(0)
}

/// The whole command, or the one of its commands that is asked for, under its full name.
fn subject(command: Option<&str>) -> Result<clap::Command, Failure> {
    let mut whole = definition();
    whole.build();
    let Some(name) = command else { return Ok(whole) };
    let found = whole.find_subcommand(name).cloned();
    found.ok_or_else(|| Failure::usage(anyhow::anyhow!("there is no command {name}")))
}
