//! The command line as `clap` knows it.

use clap::{Arg, Command, CommandFactory};

use crate::args::Cli;

/// Builds the whole command line. Only `redlock --help` describes the global options. The help of a
/// subcommand lists the options that the subcommand uses, and accepts the others as well.
pub(crate) fn definition() -> Command {
    let mut whole = Cli::command();
    let global: Vec<Arg> =
        whole.get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
    let names: Vec<String> = whole.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        whole = whole.mut_subcommand(&name, |sub| {
            let help = help_after_options(&name, &global, &sub);
            let hidden = global.iter().map(|option| option.clone().hide(true));
            sub.args(hidden).after_help(help)
        });
    }
    whole
}

/// Returns the list of global options, followed by the other texts of a help.
fn help_after_options(name: &str, global: &[Arg], sub: &Command) -> String {
    let rest = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
    let used: Vec<String> =
        global.iter().filter(|option| is_used(name, option.get_id().as_str())).map(shown).collect();
    match used.is_empty() {
        true => rest,
        false => format!("Global options (see `redlock --help`):\n{}\n\n{rest}", wrapped(&used)),
    }
}

/// Returns `true` if an option changes what a subcommand does.
fn is_used(subcommand: &str, option: &str) -> bool {
    let ignored: &[&str] = match subcommand {
        "run" | "acquire" => &[],
        "extend" | "release" | "status" => &["no_queue", "label", "quiet"],
        "doctor" => &["label", "quiet"],
        "init" => &["label", "quiet", "verbose"],
        "acl" => &["node_timeout", "max_ttl", "label", "quiet", "verbose"],
        // The masters that `dev` starts are admitted for a prefix.
        "dev" => return ["prefix", "max_ttl"].contains(&option),
        _ => return false,
    };
    !ignored.contains(&option)
}

fn shown(option: &Arg) -> String {
    let names = option.get_value_names().filter(|_| option.get_action().takes_values());
    match (option.get_short(), option.get_long(), names.and_then(|names| names.first())) {
        (Some(short), ..) => format!("-{short}"),
        (None, long, Some(value)) => format!("--{} {value}", long.unwrap_or_default()),
        (None, long, None) => format!("--{}", long.unwrap_or_default()),
    }
}

/// Joins the options in lines that fit in a terminal.
fn wrapped(options: &[String]) -> String {
    const WIDTH: usize = 100;
    let mut lines = vec![String::from(" ")];
    for (at, option) in options.iter().enumerate() {
        let comma = if at + 1 < options.len() { "," } else { "" };
        let word = format!(" {option}{comma}");
        match lines.last_mut() {
            Some(line) if line.len() + word.len() <= WIDTH => line.push_str(&word),
            _ => lines.push(format!(" {word}")),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(name: &str) -> String {
        let mut whole = definition();
        whole.build();
        whole.find_subcommand_mut(name).unwrap().render_long_help().to_string()
    }

    #[test]
    fn subcommands_list_the_global_options_in_at_most_three_lines() {
        for sub in definition().get_subcommands().filter(|sub| sub.get_name() != "generate") {
            let text = help(sub.get_name());
            let from = text.find("Global options").unwrap_or_else(|| panic!("{text}"));
            let listed: Vec<&str> =
                text[from..].lines().take_while(|line| !line.is_empty()).collect();
            assert!(listed.len() <= 3 && listed.iter().all(|line| line.len() <= 100), "{listed:?}");
            assert!(text[..from].lines().all(|line| !line.contains("REDLOCK_")), "{text}");
            assert!(listed.iter().any(|line| line.contains("--prefix TEXT")), "{listed:?}");
        }
        assert!(!help("generate").contains("Global options"));
    }

    #[test]
    fn ignored_options_are_not_listed_but_accepted() {
        for (name, ignored) in [("status", "--label"), ("doctor", ", -q"), ("dev", "--node URL")] {
            let text = help(name);
            let from = text.find("Global options").unwrap();
            let listed = text[from..].split("\n\n").next().unwrap();
            assert!(!listed.contains(ignored), "{listed}");
        }
        for line in [
            ["redlock", "status", "--label", "a"],
            ["redlock", "doctor", "-q", "-v"],
            ["redlock", "dev", "--node", "redis://a"],
        ] {
            assert!(definition().try_get_matches_from(line).is_ok(), "{line:?}");
        }
    }
}
