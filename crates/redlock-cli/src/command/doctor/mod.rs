//! `redlock doctor`: the problems of the masters, with their impact and the fix.

mod blocks;
mod examined;
mod finding;
mod findings;
mod keys;
mod no_vote;
mod probe;
mod sets;
mod settings;
mod together;

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::anyhow;
use redlock_quorum::{NodeReport, Quarantine, ServerReport, Standing};
use serde::Serialize;

use crate::answers::rows;
use crate::args;
use crate::duration::{millis, millis_up, spelled};
use crate::exit::{FINDINGS, Failure};
use crate::global::Global;
use crate::label::label;
use crate::lists;
use crate::output;
use crate::session::Session;
use blocks::{Block, blocks};
use finding::Finding;
use findings::find;
use probe::Probe;
use settings::{Setting, settings};

/// The output of `doctor --json`.
#[derive(Serialize)]
struct Report<'a> {
    settings: Vec<Setting>,
    nodes: Vec<Node<'a>>,
    findings: Vec<Finding>,
}

/// The state of one master.
#[derive(Serialize)]
struct Node<'a> {
    node: &'a str,
    state: &'static str,
    cause: Option<String>,
    set: Option<output::Set>,
    #[serde(flatten)]
    server: Option<Server<'a>>,
    #[serde(flatten)]
    probe: &'a Probe,
}

#[derive(Serialize)]
struct Server<'a> {
    run_id: &'a str,
    replid: Option<&'a str>,
    role: &'a str,
    cluster: bool,
    loading: bool,
    uptime_s: Option<u64>,
    max_ttl_ms: Option<u64>,
    admitted_as: Option<&'a str>,
    floor: Option<u64>,
    ballots: Option<u32>,
    quarantine_left_ms: Option<u64>,
    tracks: bool,
    clock_offset_ms: Option<i64>,
}

pub(crate) async fn doctor(global: &Global, args: &args::Doctor) -> Result<u8, Failure> {
    let session = Session::new(global, OsStr::new("-"))?;
    let nodes = session.inspect().await;
    let probes = probe::at_all(global, &session, &nodes).await;
    let has_quarantine = global.quarantine() == Quarantine::On;
    let quarantine = has_quarantine.then(|| session.quarantine(&nodes));
    let mut findings = find(&nodes, &probes, quarantine);
    findings.extend(sets::databases(&nodes, &probes));
    if has_quarantine {
        findings.extend(sets::find(&nodes, session.redlock.list_warning()));
    }
    findings.extend(label(global).err().map(|refused| bad_label(&refused)));
    // The findings show the lists.
    session.has_warned_of_list.set(true);
    session.close().await;
    let problems = blocks(&findings).into_iter().filter(Block::is_problem);
    let mut problems = problems.map(|block| block.line()).collect::<Vec<_>>();
    let settings = settings(global);
    if args.json {
        let nodes = nodes.iter().zip(&probes).map(|(node, probe)| Node::new(node, probe)).collect();
        output::json(&Report { settings, nodes, findings })?;
    } else {
        output::line(&people(&settings, &nodes, &findings, global.verbose))?;
    }
    let count = match problems.len() {
        0 => return Ok(0),
        1 => "1 finding".to_owned(),
        many => format!("{many} findings"),
    };
    // On a terminal, the findings are right above this line.
    if io::stdout().is_terminal() {
        problems.clear();
    }
    let said = [count, problems.join(", ")].into_iter().filter(|part| !part.is_empty());
    Err(Failure::new(FINDINGS, anyhow!(said.collect::<Vec<_>>().join(": "))))
}

/// Returns the finding about a label that this command does not need.
fn bad_label(refused: &Failure) -> Finding {
    Finding::error(
        refused.cause.to_string(),
        "commands that acquire a lock refuse to run",
        "correct the label, or unset it for the default",
    )
}

/// Returns the states of the masters, then the settings and the findings. Only verbose lines have
/// uptimes, and repeat equal states.
fn people(
    settings: &[Setting],
    nodes: &[NodeReport],
    findings: &[Finding],
    is_verbose: bool,
) -> String {
    let words = |node: &NodeReport| {
        let cause = node.cause.as_ref().map(|cause| format!("  {cause}")).unwrap_or_default();
        let uptime = node.server.as_ref().and_then(|server| server.uptime);
        let uptime =
            uptime.filter(|_| is_verbose).map(|uptime| format!("  up for {}", spelled(uptime)));
        format!("{}{}{cause}", in_words(node), uptime.unwrap_or_default())
    };
    let said: Vec<(&str, String)> = nodes.iter().map(|node| (&*node.node, words(node))).collect();
    let mut lines = rows(&said, is_verbose);
    lines.extend(sets::shown(nodes));
    lines.push("settings:".into());
    lines.extend(settings.iter().map(Setting::people));
    lines.extend(blocks(findings).iter().map(Block::people));
    if !findings.iter().any(Finding::is_problem) {
        lines.push("no problem was found".into());
    }
    lines.join("\n")
}

/// Describes the state of a master. Adds an explanation if its word is not clear by itself.
fn in_words(node: &NodeReport) -> &'static str {
    match (node.standing, &node.cause) {
        (Standing::None, Some(cause)) if lists::is_duplicate(cause) => state(node),
        (Standing::None, _) => "none (not admitted, quarantine not started)",
        _ => state(node),
    }
}

/// A master whose set does not fit the list is admitted, and gets no request for a new lock.
fn state(node: &NodeReport) -> &'static str {
    match node.cause.as_ref() {
        Some(cause) if lists::is_wrong(cause) => "refused",
        cause => output::state(node.standing, cause),
    }
}

impl<'a> Node<'a> {
    fn new(report: &'a NodeReport, probe: &'a Probe) -> Self {
        Self {
            node: &report.node,
            state: state(report),
            cause: report.cause.as_ref().map(ToString::to_string),
            set: sets::set_of(report).map(output::Set::new),
            server: report.server.as_ref().map(Server::new),
            probe,
        }
    }
}

impl<'a> Server<'a> {
    fn new(server: &'a ServerReport) -> Self {
        Self {
            run_id: &server.run_id,
            replid: server.replid.as_deref(),
            role: &server.role,
            cluster: server.is_cluster,
            loading: server.is_loading,
            uptime_s: server.uptime.as_ref().map(Duration::as_secs),
            max_ttl_ms: server.max_ttl.map(millis),
            admitted_as: server.admitted_as.as_deref(),
            floor: server.floor,
            ballots: server.ballots,
            quarantine_left_ms: server.quarantine_left.map(millis_up),
            tracks: server.tracks,
            clock_offset_ms: server.clock_offset_ms,
        }
    }
}
