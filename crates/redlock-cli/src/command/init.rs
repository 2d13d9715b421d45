//! `redlock init`: an operator asserts that no earlier lock is held, and the masters are admitted.

mod notes;

use std::ffi::OsStr;
use std::io::{self, BufRead, IsTerminal, Write};
use std::pin::pin;
use std::time::Duration;

use anyhow::anyhow;
use futures::future::join;
use redlock_quorum::{
    Cause, FencingToken, Init, InitError, InitNode, InitReport, ListDoubt, ListWarning, Lists,
    NodeReport, RecordedSet, Standing, quorum,
};
use serde::Serialize;
use tokio::time::timeout;

use crate::answers::said_of_some;
use crate::args;
use crate::command::prior;
use crate::command::refusals::{refused, standing};
use crate::duration::spelled;
use crate::exit::{Failure, NOT_OURS, UNAVAILABLE};
use crate::global::Global;
use crate::lists::{self, LIST_ONCE};
use crate::output;
use crate::session::Session;
use crate::stderr;

/// The output of `init --json`.
#[derive(Serialize)]
struct Report<'a> {
    nodes: Vec<Node<'a>>,
    floor: Option<u64>,
    set: Option<output::Set>,
}

#[derive(Serialize)]
struct Node<'a> {
    node: &'a str,
    was: &'static str,
    now: &'static str,
    run_id: Option<&'a str>,
    uptime_s: Option<u64>,
}

pub(crate) async fn init(global: &Global, args: &args::Init) -> Result<u8, Failure> {
    let session = Session::new(global, OsStr::new("-"))?;
    let lacking = session.lacking().await;
    if !lacking.is_empty() {
        stderr::note(&lacking);
    }
    let outcome = admit(&session, global, args).await;
    session.close().await;
    outcome
}

async fn admit(session: &Session, global: &Global, args: &args::Init) -> Result<u8, Failure> {
    let floor = args.floor;
    if !args.yes && !args.again {
        agree(session, global).await?;
    }
    let options = Init { again: args.again, floor, far_floor: args.far_floor };
    match patiently(session, session.redlock.init_with(options)).await {
        Ok(report) => {
            print(&report.nodes, report.floor, report.set.as_ref(), args.json)?;
            notes::a_new_set(&report.nodes);
            notes::an_unrecorded_set(&report);
            if floor.is_some() {
                notes::those_without_floor(&report.nodes);
            }
            if let Some(max_ttl) = global.max_ttl {
                notes::a_larger_max_ttl(&report.nodes, max_ttl, args.again);
                notes::a_former_max_ttl(&report.nodes);
            }
            judge(&report, session)
        }
        Err(error) => {
            if let Some(nodes) = error.nodes().filter(|_| args.json) {
                let set = RecordedSet::most_common(nodes.iter().filter_map(|n| n.set.as_ref()));
                print(nodes, None, set, true)?;
            }
            let warning = session.redlock.list_warning();
            session.has_warned_of_list.set(shows_lists(&error, warning.as_ref()));
            let limits = error.nodes().filter(|_| global.max_ttl.is_some()).and_then(limits);
            let step = session.next_step(&causes(error.nodes().unwrap_or_default()));
            let failure = refused(error, warning.as_ref(), &step);
            Err(match limits {
                Some(limits) => failure.with_hint(&limits),
                None => failure,
            })
        }
    }
}

/// Waits for the end of a call, and names the masters that it waits for if it takes long: they
/// read their data from disk, and show their record afterwards.
async fn patiently<T>(session: &Session, init: impl Future<Output = T>) -> T {
    const LONG: Duration = Duration::from_secs(1);
    let mut init = pin!(init);
    if let Ok(done) = timeout(LONG, &mut init).await {
        return done;
    }
    let note = async {
        let nodes = session.inspect().await;
        let is_loading = |node: &&NodeReport| node.server.as_ref().is_some_and(|it| it.is_loading);
        let loading: Vec<&str> = nodes.iter().filter(is_loading).map(|node| &*node.node).collect();
        if !loading.is_empty() {
            let most = spelled(session.quarantine(&nodes));
            let names = loading.join(", ");
            stderr::note(&format!("waiting for at most {most} until {names} has loaded its data"));
        }
    };
    let (done, ()) = join(init, note).await;
    done
}

fn causes(nodes: &[InitNode]) -> Vec<Cause> {
    nodes.iter().filter_map(|node| node.cause.clone()).collect()
}

/// Returns `true` if a refusal shows the recorded set and the list, or is about duplicate
/// addresses, without which the list may fit.
fn shows_lists(error: &InitError, warning: Option<&ListWarning>) -> bool {
    let is_of_names = warning.is_some_and(|warning| warning.doubt == ListDoubt::Names);
    match error {
        InitError::OtherSet { .. } => true,
        InitError::Unread { nodes, .. } if causes(nodes).iter().any(lists::is_duplicate) => true,
        InitError::Unread { .. } => is_of_names,
        _ => false,
    }
}

/// Shows the masters, and prompts for confirmation on a terminal. Without a terminal, an option
/// must confirm.
async fn agree(session: &Session, global: &Global) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(no_terminal(session).await);
    }
    let nodes = prior::check(session, global).await?;
    for node in &nodes {
        stderr::note(&shown(node));
    }
    let changes = lists::others(&nodes);
    for lists in &changes {
        stderr::note(&lists::both(lists));
    }
    session.has_warned_of_list.set(true);
    // No answer is a no.
    let _ = io::stderr().write_all(question(&changes, session.quarantine(&nodes)).as_bytes());
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new(NOT_OURS, anyhow!("nothing was written"))),
    }
}

/// Creates the error of a call that cannot prompt, because it has no terminal. The error
/// contains both lists if the call would change the set.
async fn no_terminal(session: &Session) -> Failure {
    let nodes = session.inspect().await;
    session.has_warned_of_list.set(true);
    if let Some(failure) = prior::wrong_list(session, &nodes) {
        return failure;
    }
    let changes = lists::others(&nodes);
    let changes: String = changes.iter().map(|lists| format!("; {}", lists::both(lists))).collect();
    let what = "refused, nothing was written: no terminal to confirm on; use --yes";
    Failure::usage(anyhow!("{what}{changes}"))
}

/// Returns the statements to confirm. A change of the list is a second statement.
fn question(changes: &[Lists], quarantine: Duration) -> String {
    let quarantine = format!("{} (1.1 × max_ttl)", spelled(quarantine));
    let change = |lists: &Lists| {
        format!(
            "The recorded set of masters changes: {}. Answer y only if every client uses the \
             recorded list or this one, and the previous change was at least {quarantine} ago.\n",
            lists::change(lists)
        )
    };
    let changes: String = changes.iter().map(change).collect();
    format!(
        "{changes}Answer y only if (a) none of these masters was restarted, flushed or replaced in \
         the last {quarantine}, or (b) no client holds a lock on them. Otherwise two clients could \
         hold the same lock.\nLet them vote now? [y/N] "
    )
}

fn shown(node: &NodeReport) -> String {
    let process = match &node.server {
        Some(server) => process(Some(&server.run_id), server.uptime),
        None => node.cause.as_ref().map_or_else(String::new, ToString::to_string),
    };
    let state = output::state(node.standing, node.cause.as_ref());
    format!("{}  {state}  {process}", node.node)
}

/// Describes a process by the start of its id, which is enough to compare it, and by its uptime.
fn process(run_id: Option<&str>, uptime: Option<Duration>) -> String {
    let run = run_id.map_or("?", |run_id| run_id.get(..8).unwrap_or(run_id));
    match uptime {
        Some(uptime) => format!("run {run}, up for {}", spelled(uptime)),
        None => format!("run {run}"),
    }
}

fn print(
    nodes: &[InitNode],
    floor: Option<FencingToken>,
    set: Option<&RecordedSet>,
    as_json: bool,
) -> Result<(), Failure> {
    let floor = floor.map(FencingToken::get);
    if as_json {
        let (nodes, set) = (nodes.iter().map(Node::new).collect(), set.map(output::Set::new));
        return output::json(&Report { nodes, floor, set });
    }
    let widest = nodes.iter().map(|node| node.node.len()).max().unwrap_or_default();
    let line = |node: &InitNode| {
        let process = match (&node.run_id, &node.cause) {
            (None, Some(cause)) => cause.to_string(),
            (run_id, _) => process(run_id.as_deref(), node.uptime),
        };
        let limit = node.max_ttl.map(|max_ttl| format!(", max_ttl {}", spelled(max_ttl)));
        let limit = limit.unwrap_or_default();
        let [was, now] = states(node);
        format!("{:widest$}  {was} -> {now}  {process}{limit}", node.node)
    };
    output::line(&nodes.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// Returns the values of `max_ttl` after a refusal, which admits no master but may have raised the
/// value on voting masters. `None` if all masters have the same unchanged value.
fn limits(nodes: &[InitNode]) -> Option<String> {
    let first = nodes.first()?.max_ttl;
    let is_same = |node: &InitNode| node.max_ttl == first && node.former_max_ttl == first;
    if nodes.iter().all(is_same) {
        return None;
    }
    let shown = |max_ttl: Option<Duration>| match max_ttl {
        Some(max_ttl) => spelled(max_ttl),
        None => "none".to_owned(),
    };
    let limit = |node: &InitNode| {
        let (now, former) = (shown(node.max_ttl), shown(node.former_max_ttl));
        let former = if now == former { String::new() } else { format!(" (was {former})") };
        format!("{} {now}{former}", node.node)
    };
    let limits = nodes.iter().map(limit).collect::<Vec<_>>().join(", ");
    Some(format!("max_ttl is now: {limits}"))
}

/// Judges whether a quorum votes now, and names the absent masters, which need another call.
fn judge(report: &InitReport, session: &Session) -> Result<u8, Failure> {
    let missing = report.nodes.iter().filter(|node| node.now != Standing::Admitted);
    let said: Vec<_> = missing.clone().map(|node| (&*node.node, standing(node))).collect();
    if report.admitted() < quorum(report.nodes.len()) {
        let step = session.next_step(&causes(&report.nodes));
        let cause = anyhow!("too few masters vote: {}; {step}", said_of_some(said));
        return Err(Failure::new(UNAVAILABLE, cause));
    }
    for node in missing {
        stderr::note(&format!("{} {}; {}", node.node, standing(node), later(node)));
    }
    Ok(0)
}

/// Describes when a non-admitted master can vote.
fn later(node: &InitNode) -> &'static str {
    match &node.cause {
        Some(cause) if lists::is_duplicate(cause) => LIST_ONCE,
        Some(Cause::NotAdmitted(not)) if !not.is_curable() => {
            "it cannot be admitted until that is fixed"
        }
        _ => LATER,
    }
}

/// From now on, a plain `init` is refused if the master shows no admission, because it looks the
/// same as one that lost its data.
const LATER: &str = "once reachable, it votes immediately if it was admitted before and kept its \
    data, and otherwise after a quarantine, or after `redlock init --again` (only if no lock is \
    held)";

/// The states of a master before and now.
fn states(node: &InitNode) -> [&'static str; 2] {
    [node.was, node.now].map(|standing| output::state(standing, node.cause.as_ref()))
}

impl<'a> Node<'a> {
    fn new(node: &'a InitNode) -> Self {
        let [was, now] = states(node);
        Self {
            node: &node.node,
            was,
            now,
            run_id: node.run_id.as_deref(),
            uptime_s: node.uptime.map(|uptime| uptime.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::lab::nodes;

    #[tokio::test]
    async fn limits_are_printed_if_they_differ_or_have_changed() {
        let mut nodes = nodes().await;
        let second = |seconds| Some(Duration::from_secs(seconds));
        for node in &mut nodes {
            (node.max_ttl, node.former_max_ttl) = (second(60), second(60));
        }
        assert_eq!(limits(&nodes), None);
        let name = |place: usize| nodes[place].node.to_string();
        let names = [name(0), name(1), name(2)];
        nodes[0].max_ttl = second(120);
        (nodes[2].max_ttl, nodes[2].former_max_ttl) = (None, None);
        let [a, b, c] = names;
        let said = format!("max_ttl is now: {a} 2m (was 1m), {b} 1m, {c} none");
        assert_eq!(limits(&nodes), Some(said));
    }
}
