//! Parsing of the command line, and the messages for errors in it.

use std::ffi::OsString;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use redlock_quorum::printable;

use crate::args::{Cli, Command};
use crate::dashes;
use crate::definition::definition;
use crate::exit::USAGE;
use crate::output;
use crate::stderr;

/// The command line; or, once help, version or an error has been printed, the exit code.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, u8> {
    let parsed = definition().try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed.and_then(with_keys) {
        Ok(cli) if has_all_nodes(&cli, words) => Ok(cli),
        Ok(_) => {
            complain("pass every --node before the subcommand, or every --node after it");
            Err(USAGE)
        }
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            let printed = output::help(&error.render().to_string());
            Err(printed.map_or_else(|failure| failure.report(), |()| 0))
        }
        Err(error) if is_without_command(error.kind()) => {
            complain(&format!("no command was given\n\n{}", definition().render_help()));
            Err(USAGE)
        }
        Err(error) => {
            let missing = dashes::missing(words, error.kind());
            let text = match missing.or_else(|| key_with_dash(words, &error)) {
                Some(text) => text,
                None => in_our_words(&without_secrets(&error)),
            };
            complain(&text);
            Err(USAGE)
        }
    }
}

/// Takes the KEYs of `run` from between two `--` if they are there.
fn with_keys(cli: Cli) -> Result<Cli, clap::Error> {
    let Cli { global, command } = cli;
    let command = match command {
        Command::Run(run) => Command::Run(
            run.with_keys_between_dashes()
                .map_err(|why| definition().error(ErrorKind::ValueValidation, why))?,
        ),
        other => other,
    };
    Ok(Cli { global, command })
}

/// The fix for a KEY of `run` that begins with `-`: clap's tip lacks the second `--`.
fn key_with_dash(words: &[OsString], error: &clap::Error) -> Option<String> {
    let is_run = words.iter().take_while(|word| *word != "--").any(|word| word == "run");
    let given = error.get(ContextKind::InvalidArg)?.to_string();
    (is_run && error.kind() == ErrorKind::UnknownArgument).then(|| {
        format!(
            "unknown option '{given}'; if a KEY begins with -, run: redlock run -- KEY -- COMMAND"
        )
    })
}

fn is_without_command(kind: ErrorKind) -> bool {
    let kinds = [ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, ErrorKind::MissingSubcommand];
    kinds.contains(&kind)
}

/// Returns `false` if `--node` occurs both before and after the subcommand. Only one side would be
/// used, and a list of masters must never be shorter than intended.
fn has_all_nodes(cli: &Cli, words: &[OsString]) -> bool {
    let ours = words.iter().take_while(|word| *word != "--");
    let is_node = |word: &&OsString| {
        word.to_str().is_some_and(|word| word == "--node" || word.starts_with("--node="))
    };
    ours.filter(is_node).count() <= cli.global.nodes.len()
}

/// Returns the text of an error, without a word that may be a secret in the wrong place.
fn without_secrets(error: &clap::Error) -> String {
    let mut text = error.render().to_string();
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand]
    {
        if let Some(ContextValue::String(word)) = error.get(kind)
            && printable::may_be_secret(word)
        {
            text = text.replace(word.as_str(), "***");
        }
    }
    text
}

fn complain(text: &str) {
    stderr::complain(&format!("redlock: {}", text.trim_end()));
}

/// The cause on the first line, whatever lines it was on; then usage and tips.
fn in_our_words(text: &str) -> String {
    let (cause, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let cause = cause.strip_prefix("error: ").unwrap_or(cause);
    let cause: Vec<_> = cause.split_whitespace().collect();
    format!("{}\n\n{rest}", cause.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Cli, u8> {
        parse(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn masters_on_both_sides_of_the_command_are_refused() {
        assert_eq!(parsed("redlock --node redis://a status k --node=redis://b").err(), Some(USAGE));
        let cli = parsed("redlock --node redis://a --node redis://b run k -- c --node x").unwrap();
        assert_eq!(cli.global.nodes, ["redis://a", "redis://b"]);
    }

    #[test]
    fn multi_line_cause_is_joined_into_the_first_line() {
        let text = "error: these were not provided:\n  <KEY>\n\nUsage: redlock run\n";
        let ours = in_our_words(text);
        assert_eq!(ours, "these were not provided: <KEY>\n\nUsage: redlock run\n");
    }
}
