//! The numbers of a handle in the text format of Prometheus, for a metrics endpoint.
//!
//! `REDLOCK_NODES=redis://..,redis://.. cargo run -p redlock-quorum --example metrics`. Without
//! `REDLOCK_NODES`, it starts five disposable masters. It takes some locks and prints the answer to
//! a scrape.

use std::fmt::Write;

use redlock_quorum::{Histogram, NodeStats, Redlock, Stats};
use redlock_testkit::RedisServers;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let throw_away;
    let redlock = if let Ok(nodes) = std::env::var("REDLOCK_NODES") {
        Redlock::connect(nodes.split(','))?
    } else {
        throw_away = RedisServers::start(5)?;
        Redlock::connect(throw_away.urls())?
    };
    for order in 0..10 {
        redlock.lock(format!("orders:{order}")).run(|_hold| async {}).await?;
    }
    print!("{}", prometheus(&redlock.stats()));
    Ok(())
}

/// One scrape.
fn prometheus(stats: &Stats) -> String {
    let mut text = String::new();
    family(&mut text, "attempts_total", "counter");
    for (outcome, attempts) in stats.outcomes.by_name() {
        line(&mut text, &format!("attempts_total{{outcome=\"{outcome}\"}}"), attempts);
    }
    counter(&mut text, "rounds", stats.rounds);
    counter(&mut text, "ballots", stats.ballots);
    counter(&mut text, "second_ballots", stats.second_ballots);
    counter(&mut text, "ballots_refused", stats.ballots_refused);
    counter(&mut text, "requests", stats.requests);
    counter(&mut text, "acquired", stats.acquired);
    counter(&mut text, "handed_over", stats.handed_over);
    counter(&mut text, "failed", stats.failed);
    counter(&mut text, "cancelled", stats.cancelled);
    counter(&mut text, "watches", stats.watches);
    counter(&mut text, "polls", stats.polls);
    counter(&mut text, "observations", stats.observations);
    counter(&mut text, "pushes", stats.pushes);
    counter(&mut text, "extensions", stats.extensions);
    gauge(&mut text, "held", stats.held);
    gauge(&mut text, "waiting", stats.waiting);
    histogram(&mut text, "wait_seconds", &stats.waits);
    histogram(&mut text, "extension_margin_seconds", &stats.margins);
    family(&mut text, "lost_total", "counter");
    for (reason, lost) in stats.losses.by_name() {
        line(&mut text, &format!("lost_total{{reason=\"{reason}\"}}"), lost);
    }
    nodes(&mut text, &stats.nodes);
    text
}

fn nodes(text: &mut String, nodes: &[NodeStats]) {
    family(text, "votes_total", "counter");
    for node in nodes {
        for (verdict, votes) in node.votes.by_name() {
            let labels = format!("node=\"{}\",verdict=\"{verdict}\"", node.node);
            line(text, &format!("votes_total{{{labels}}}"), votes);
        }
    }
    let one = |node: &NodeStats, name: &str| format!("{name}{{node=\"{}\"}}", node.node);
    family(text, "up", "gauge");
    nodes.iter().for_each(|node| line(text, &one(node, "up"), u64::from(node.is_up)));
    family(text, "connections_total", "counter");
    nodes.iter().for_each(|node| line(text, &one(node, "connections_total"), node.connections));
    family(text, "unacknowledged", "gauge");
    nodes.iter().for_each(|node| line(text, &one(node, "unacknowledged"), node.unacknowledged));
}

fn counter(text: &mut String, name: &str, number: u64) {
    let name = format!("{name}_total");
    family(text, &name, "counter");
    line(text, &name, number);
}

fn gauge(text: &mut String, name: &str, number: u64) {
    family(text, name, "gauge");
    line(text, name, number);
}

/// The buckets of Prometheus count all that is no longer than their bound.
fn histogram(text: &mut String, name: &str, histogram: &Histogram) {
    family(text, name, "histogram");
    let mut so_far = 0;
    for (bound, count) in Histogram::BOUNDS.iter().zip(histogram.buckets) {
        so_far += count;
        line(text, &format!("{name}_bucket{{le=\"{}\"}}", bound.as_secs_f64()), so_far);
    }
    line(text, &format!("{name}_bucket{{le=\"+Inf\"}}"), histogram.count);
    line(text, &format!("{name}_sum"), histogram.sum.as_secs_f64());
    line(text, &format!("{name}_count"), histogram.count);
}

fn family(text: &mut String, name: &str, kind: &str) {
    let _ = writeln!(text, "# TYPE redlock_{name} {kind}");
}

/// Writing into a text does not fail.
fn line(text: &mut String, name: &str, number: impl std::fmt::Display) {
    let _ = writeln!(text, "redlock_{name} {number}");
}

#[tokio::test]
async fn scrape_has_each_metric_once() -> anyhow::Result<()> {
    let masters = RedisServers::start(3)?;
    let redlock = Redlock::connect(masters.urls())?;
    redlock.lock("orders:1").run(|_hold| async {}).await?;
    let scrape = prometheus(&redlock.stats());
    let mut names = std::collections::HashSet::new();
    let mut family = "";
    for line in scrape.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap_or_default();
            continue;
        }
        let (name, number) = line.rsplit_once(' ').expect("a name and a number");
        assert!(name.starts_with(family), "{line} in {family}");
        assert!(names.insert(name), "{name} is there twice");
        assert!(number.parse::<f64>().is_ok(), "{line}");
    }
    assert!(scrape.contains("redlock_acquired_total 1\n"), "{scrape}");
    assert!(scrape.contains("redlock_wait_seconds_bucket{le=\"+Inf\"} 1\n"), "{scrape}");
    assert!(scrape.contains("redlock_wait_seconds_count 1\n"), "{scrape}");
    assert!(names.iter().filter(|name| name.contains("verdict=\"granted\"")).count() == 3);
    Ok(())
}
