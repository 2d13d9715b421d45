//! The command line as `clap` knows it.

use clap::CommandFactory;

use crate::args::Cli;

/// The whole command line. The options that say where masters are do not stand in the help of
/// commands that start masters or print texts.
pub(crate) fn definition() -> clap::Command {
    let whole = Cli::command();
    let hide = |option: &clap::Arg| option.clone().hide(true);
    let global = whole.get_arguments().filter(|option| option.is_global_set());
    let global: Vec<_> = global.map(hide).collect();
    // Masters that `dev` starts are admitted for a namespace.
    let is_namespace =
        |option: &&clap::Arg| ["prefix", "max_ttl"].contains(&option.get_id().as_str());
    let of_dev: Vec<_> = global.iter().filter(|option| !is_namespace(option)).cloned().collect();
    whole
        .mut_subcommand("dev", |command| command.args(of_dev))
        .mut_subcommand("generate", |command| command.args(global))
}
