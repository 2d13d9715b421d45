//! Admits a server that was just started, as `redlock init --again` does: no client has used it
//! yet.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use redlock_core::admission::{
    AdmissionOp, AdmissionReply, Init, Nonce, Outcome, Record, RecordedSet, SetChange,
};
use redlock_core::{
    Clock, Events, Facts, Instant, Node, NodeEvent, Op, RedisNode, RedisSetup, Role, Sink, Vote,
    VoteSlot,
};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// For which clients a server is admitted.
#[derive(Clone, Debug)]
pub(super) struct Namespace {
    pub(super) prefix: Vec<u8>,
    pub(super) max_ttl: Duration,
    /// The set of masters to record. `None` leaves the recorded set.
    pub(super) set: Option<RecordedSet>,
}

/// The reports of the node.
enum Report {
    Event(NodeEvent),
    Answer(Vote),
}

struct Ear(UnboundedSender<Report>);

impl Sink for Ear {
    // If the receiver is gone, it needs no more votes.
    fn vote(&self, vote: Vote) {
        let _ = self.0.send(Report::Answer(vote));
    }

    fn event(&self, _: usize, event: NodeEvent) {
        let _ = self.0.send(Report::Event(event));
    }
}

/// Blocks until the server is admitted. Replicas and cluster nodes are not changed.
///
/// It uses its own thread and runtime, because the caller may be inside a runtime.
pub(super) fn admit(url: &str, namespace: &Namespace) -> anyhow::Result<()> {
    let work = || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            timeout(PATIENCE, converse(url, namespace))
                .await
                .context("it did not answer in time")?
        })
    };
    let ended = thread::scope(|scope| scope.spawn(work).join());
    ended.unwrap_or_else(|_| Err(anyhow!("the thread that admits it has panicked")))
}

async fn converse(url: &str, namespace: &Namespace) -> anyhow::Result<()> {
    let mut setup = RedisSetup::new(Clock::system(), PATIENCE);
    setup.namespace = Some(namespace.prefix.as_slice().into());
    let node = Arc::new(RedisNode::new(url, &setup)?);
    let (sender, mut heard) = unbounded_channel();
    let ear = Arc::new(Ear(sender));
    let driving = node.clone().drive(Events::new(ear.clone(), 0));
    tokio::select! {
        outcome = ask(&node, &ear, &mut heard, namespace) => outcome,
        () = async { if let Some(driving) = driving { driving.await } } => bail!("it is gone"),
    }
}

async fn ask(
    node: &RedisNode,
    ear: &Arc<Ear>,
    heard: &mut UnboundedReceiver<Report>,
    namespace: &Namespace,
) -> anyhow::Result<()> {
    while let Some(heard) = heard.recv().await {
        match heard {
            Report::Event(NodeEvent::Up(facts)) => match init(&facts, namespace) {
                Some(init) => {
                    let slot = VoteSlot::new(ear.clone(), 0, 0, Instant::ORIGIN);
                    node.submit(Op::admission(AdmissionOp::Init(init)), slot);
                }
                None => return Ok(()),
            },
            Report::Event(NodeEvent::Down { cause, .. }) => bail!("no connection: {cause}"),
            Report::Event(_) => {}
            Report::Answer(answer) => return check(answer),
        }
    }
    bail!("it is gone")
}

fn check(vote: Vote) -> anyhow::Result<()> {
    match vote.answer.into_admission() {
        Ok(AdmissionReply::Script(reply)) if reply.outcome == Outcome::Done => Ok(()),
        said => bail!("{said:?}"),
    }
}

/// `None` for a server that cannot be admitted.
fn init(facts: &Facts, namespace: &Namespace) -> Option<Init> {
    let is_master = facts.role == Role::Master && !facts.is_cluster;
    let (identity, record) = (facts.identity.filter(|_| is_master)?, facts.record.as_ref().ok()?);
    Some(Init {
        expect: record.seen(),
        identity,
        nonce: Nonce(rand::random()),
        max_ttl: namespace.max_ttl.as_millis().try_into().unwrap_or(u64::MAX),
        lower: true,
        floor: FLOOR,
        level: 0,
        converts: true,
        set: set_change(record, namespace),
        until: u64::MAX,
    })
}

fn set_change(record: &Record, namespace: &Namespace) -> Option<SetChange> {
    let to = namespace.set.clone()?;
    Some(SetChange { from: record.set.clone(), to })
}

/// Longer than a server takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// The smallest possible floor: no server of the kit has accepted a ballot before.
const FLOOR: u64 = 31;
