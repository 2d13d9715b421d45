//! `Nodes`: the connections to the masters, and what is handed to them.

use std::sync::Arc;
use std::task::{Context, Waker};

use futures_util::future::BoxFuture;
use redlock_core::admission::Identity;
use redlock_core::{Events, Instant, Node, Op, VoteSlot};

use super::mailbox::Mailbox;

/// The nodes of all masters.
pub(super) struct Nodes {
    nodes: Arc<[Arc<dyn Node>]>,
    pub(super) names: Arc<[Arc<str>]>,
    mailbox: Arc<Mailbox>,
    ports: Vec<Port>,
}

/// The way to one node.
#[derive(Default)]
struct Port {
    /// The requests that the node gets together at the end of this turn.
    outbox: Vec<(Op, VoteSlot)>,
    /// The node's own input and output, with the waker for its work.
    drive: Option<(BoxFuture<'static, ()>, Waker)>,
}

impl Nodes {
    pub(super) fn new(nodes: Arc<[Arc<dyn Node>]>, mailbox: Arc<Mailbox>) -> Self {
        let names = nodes.iter().map(|node| node.name().into()).collect();
        let ports = nodes.iter().map(|_| Port::default()).collect();
        Self { nodes, names, mailbox, ports }
    }

    /// Opens the connections. Their first poll is due immediately.
    pub(super) fn connect(&mut self) {
        for (master, port) in self.ports.iter_mut().enumerate() {
            let events = Events::new(self.mailbox.clone(), master);
            let waker = self.mailbox.link_waker(master);
            port.drive = self.nodes[master].clone().drive(events).map(|drive| {
                waker.wake_by_ref();
                (drive, waker)
            });
        }
    }

    /// Closes the connections. Every unanswered request becomes *unknown*.
    pub(super) fn disconnect(&mut self) {
        for port in &mut self.ports {
            port.outbox.clear();
            port.drive = None;
        }
    }

    /// Polls the connection to `master`.
    pub(super) fn drive(&mut self, master: usize) {
        let Some((drive, waker)) = &mut self.ports[master].drive else { return };
        if drive.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            self.ports[master].drive = None;
        }
    }

    /// Queues the request for `master`, which gets it together with all others of this turn.
    #[inline]
    pub(super) fn submit(&mut self, master: usize, op: &Op, ticket: u128, now: Instant) {
        let slot = VoteSlot::new(self.mailbox.clone(), master, ticket, now);
        self.ports[master].outbox.push((op.clone(), slot));
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Hands the collected requests to the nodes. A node wakes its connection, or answers
    /// immediately.
    pub(super) fn hand_over(&mut self) {
        for (node, port) in self.nodes.iter().zip(&mut self.ports) {
            if !port.outbox.is_empty() {
                node.submit_all(&mut port.outbox);
            }
        }
    }

    pub(super) fn set_admitted(&self, master: usize, run: Option<Identity>) {
        self.nodes[master].set_admitted(run);
    }

    pub(super) fn set_urgent(&self, master: usize, is_urgent: bool) {
        self.nodes[master].set_urgent(is_urgent);
    }
}
