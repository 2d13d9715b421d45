//! `SimNode`: a simulated master that implements [`Node`], with a switch for every fault.

use std::fmt;
use std::future::pending;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use redlock_core::admission::{Identity, RecordedSet};
use redlock_core::{Clock, Events, Instant, Node, Op, Role, VoteSlot};

use super::data::Data;
use super::faults::Restart;
use super::log::Executed;
use super::outbox::Outbox;
use super::timed::Timed;
use super::world::World;

/// One simulated Redis master, as one client sees it.
///
/// Without delays, it answers before [`Node::submit`] returns, inside or outside a runtime. With
/// delays, it needs a runtime, and the delays are as exact as tokio's timer, which has a resolution
/// of one millisecond. It answers without being driven. [`Node::drive`] only reports events, and
/// reports the present state of the connection immediately.
///
/// *Network* faults (delays, losses, partition) affect only this client. *Server* faults (hold,
/// down, restart, flush, clock, errors) and the keys are the same for all clients of the master.
/// [`SimNode::another_client`] creates a second client.
///
/// Changes of watched keys are pushed as by a real server, except that the expiry of a key is
/// pushed only when a request finds it.
///
/// When a connection breaks, all its requests are answered with *unknown*. The seed decides which
/// of the requests on their way are executed. They keep their order, and never follow a request
/// that was submitted on the next connection.
pub struct SimNode {
    name: String,
    timed: Arc<Timed>,
    link: usize,
}

impl SimNode {
    /// Creates an empty master that shows the time of `clock` and makes its random choices from
    /// `seed`.
    pub fn new(name: impl Into<String>, seed: u64, clock: Clock) -> Arc<Self> {
        let timed = Timed::new(clock, seed);
        let link = timed.lock().world.connect(None);
        Arc::new(Self { name: name.into(), timed, link })
    }

    /// Returns the master over another connection, with its own network faults.
    #[must_use]
    pub fn another_client(&self) -> Arc<Self> {
        self.alias(self.name.clone())
    }

    /// Returns the master under a second address: two nodes with one `run_id`, of which only one
    /// may vote. The alias has its own connection and network faults.
    #[must_use]
    pub fn alias(&self, name: impl Into<String>) -> Arc<Self> {
        let link = self.timed.lock().world.connect(None);
        Arc::new(Self { name: name.into(), timed: self.timed.clone(), link })
    }

    /// Sets how long requests and replies take from now on. Both default to zero. Messages on one
    /// connection keep their order, whatever delays are drawn.
    pub fn delay(&self, requests: RangeInclusive<Duration>, replies: RangeInclusive<Duration>) {
        self.change(|world, link, _, _| world.delay(link, requests, replies));
    }

    /// Sets whether requests are lost. Setting it back makes a new connection, as a client does
    /// after a period of silence.
    pub fn lose_requests(&self, lose: bool) {
        self.change(|world, link, now, outbox| world.lose_requests(link, lose, now, outbox));
    }

    /// Sets whether replies are lost, so that no client learns the outcome. Setting it back makes a
    /// new connection, as a client does after a period of silence.
    pub fn lose_replies(&self, lose: bool) {
        self.change(|world, link, now, outbox| world.lose_replies(link, lose, now, outbox));
    }

    /// Breaks the connection. There is no new one before [`SimNode::heal`].
    pub fn partition(&self) {
        self.change(|world, link, now, outbox| world.partition(link, now, outbox));
    }

    /// Lets the client reach the master again.
    pub fn heal(&self) {
        self.change(|world, link, _, _| world.heal(link));
    }

    /// Stops the server process as `SIGSTOP` does: requests wait, and its clock continues.
    pub fn hold(&self) {
        self.change(|world, _, _, _| world.hold(true));
    }

    /// Continues a held server process, which then handles the waiting requests.
    pub fn release(&self) {
        self.change(|world, _, _, _| world.hold(false));
    }

    /// Stops listening: connections break, and new ones are refused. The keys remain.
    pub fn down(&self) {
        self.change(|world, _, now, outbox| world.down(now, outbox));
    }

    /// Listens again without a restart. For a new process, call [`SimNode::crash_and_restart`]
    /// first.
    pub fn up(&self) {
        self.change(|world, _, _, _| world.up());
    }

    /// Ends the server process and starts another, with the keys of the old one (a persistent
    /// master that syncs every write) or without any. A master that is down stays down.
    pub fn crash_and_restart(&self, keep_data: bool) {
        let with = if keep_data { Restart::Keeping } else { Restart::Empty };
        self.change(|world, _, now, outbox| world.restart(with, now, outbox));
    }

    /// Sets whether the server pushes changes of keys, as it does by default. Without it, the
    /// server behaves like Redis before 6.0. All connections are made again.
    pub fn set_tracking(&self, tracks: bool) {
        self.change(|world, _, now, outbox| world.set_tracking(tracks, now, outbox));
    }

    /// Sets whether this client has a quarantine, as it does by default. Without it, its ballots go
    /// to another set.
    pub fn set_quarantine(&self, on: bool) {
        self.change(|world, link, _, _| world.set_quarantine(link, on));
    }

    /// Answers every ballot, and every request for a score, with this error, such as `NOPERM ...`,
    /// and reports it on each connection; `None` ends that. All connections are made again.
    pub fn refuse_ballots(&self, error: Option<&str>) {
        self.change(|world, _, now, outbox| world.refuse_ballots(error, now, outbox));
    }

    /// Answers every entry into a queue, and every exit, with this error, such as `NOPERM ...`, and
    /// reports it on each connection; `None` ends that. All connections are made again.
    pub fn refuse_queues(&self, error: Option<&str>) {
        self.change(|world, _, now, outbox| world.refuse_queues(error, now, outbox));
    }

    /// Returns how many tickets wait in a queue now: see [`SharedQueue::key_of`].
    ///
    /// [`SharedQueue::key_of`]: redlock_core::SharedQueue::key_of
    pub fn waiters(&self, queue: impl AsRef<[u8]>) -> u32 {
        self.read(|world, now| world.master.waiters(now, queue.as_ref()))
    }

    /// Makes the server a replica, as `REPLICAOF` does, or a master again, with another identity. A
    /// replica answers every write with `READONLY`. All connections are made again, as clients do
    /// that find this out.
    pub fn set_role(&self, role: Role) {
        self.change(|world, _, now, outbox| world.set_role(role, now, outbox));
    }

    /// Deletes all keys and the record, as `FLUSHALL` does.
    pub fn flush(&self) {
        self.change(|world, _, _, _| world.master.flush());
    }

    /// Reports to all clients that the data may be lost although it is not, as a server does when
    /// another database is flushed.
    pub fn flush_another_database(&self) {
        self.change(|world, _, _, _| world.master.changes.push(None));
    }

    /// Returns its present TIME, in microseconds since 1970.
    pub fn time_us(&self) -> u64 {
        self.read(|world, now| world.time_us(now))
    }

    /// Sets the master's clock by so many milliseconds, forward or back.
    pub fn step_clock(&self, millis: i64) {
        self.change(|world, _, _, _| world.step_clock(millis));
    }

    /// Sets how fast the master's clock runs from now on. 1.0 is correct.
    pub fn set_clock_rate(&self, rate: f64) {
        self.change(|world, _, now, _| world.master.clock.set_rate(now, rate));
    }

    /// Answers every request with this error, such as `OOM ...`, and carries nothing out; `None`
    /// ends that.
    pub fn error_replies(&self, error: Option<&str>) {
        self.change(|world, _, _, _| world.master.error = error.map(str::to_owned));
    }

    /// Sets a key for `px` milliseconds, over any holder: what a stranger's `SET` does.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, px: u64) {
        self.change(|world, _, now, _| {
            world.master.put(now, key.as_ref(), Some(value.as_ref()), px);
        });
    }

    /// Sets a key that is not a string for `px` milliseconds, over any holder.
    pub fn put_other_type(&self, key: impl AsRef<[u8]>, px: u64) {
        self.change(|world, _, now, _| world.master.put(now, key.as_ref(), None, px));
    }

    /// Returns the value of a key, unless it has expired by the master's own clock.
    pub fn holder(&self, key: impl AsRef<[u8]>) -> Option<String> {
        self.read(|world, now| world.holder(key.as_ref(), now))
    }

    /// Returns the number of keys that have not expired by the master's own clock.
    pub fn keys(&self) -> usize {
        self.read(|world, now| world.keys(now))
    }

    /// Returns what the master has executed, in order, for all clients: the last million requests.
    pub fn log(&self) -> Vec<Executed> {
        self.read(|world, _| world.log())
    }

    /// Admits the master as `redlock init` does, whatever its data: see
    /// [`Init`](redlock_core::admission::Init). The score of all its members is 31.
    ///
    /// # Panics
    /// Panics if clients without a quarantine have written to it.
    pub fn init(&self, max_ttl: Duration) {
        self.init_into(max_ttl, None);
    }

    /// Admits the master, and records this set of masters.
    pub(super) fn init_into(&self, max_ttl: Duration, set: Option<RecordedSet>) {
        self.change(|world, _, now, _| world.init(max_ttl, set, now));
    }

    /// Returns the master's admission data.
    pub fn data(&self) -> Data {
        self.read(|world, _| world.master.data.clone())
    }

    /// Changes the master's admission data without notifying any client, for example to restore an
    /// old snapshot or delete a ballot set. Nothing is pushed.
    pub fn edit_data(&self, edit: impl FnOnce(&mut Data)) {
        self.change(|world, _, _, _| edit(&mut world.master.data));
    }

    fn change(&self, change: impl FnOnce(&mut World, usize, Instant, &mut Outbox)) {
        let link = self.link;
        self.timed.change(|world, now, outbox| change(world, link, now, outbox));
    }

    fn read<R>(&self, read: impl FnOnce(&World, Instant) -> R) -> R {
        let timed = self.timed.lock();
        read(&timed.world, timed.clock.now())
    }
}

impl Node for SimNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        self.change(|world, link, now, outbox| world.submit(link, (op, slot), now, outbox));
    }

    fn set_admitted(&self, run: Option<Identity>) {
        self.change(|world, link, _, _| world.set_admitted(link, run));
    }

    fn is_in_virtual_time(&self) -> bool {
        true
    }

    fn drive(self: Arc<Self>, events: Events) -> Option<BoxFuture<'static, ()>> {
        let driven = Driven::new(self, events);
        Some(Box::pin(async move {
            let _driven = driven;
            pending().await
        }))
    }
}

impl fmt::Debug for SimNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimNode")
            .field("name", &self.name)
            .field("obstacle", &self.read(|world, _| world.obstacle(self.link)))
            .finish_non_exhaustive()
    }
}

/// A listener, for as long as the node is driven.
struct Driven {
    node: Arc<SimNode>,
    number: u64,
}

impl Driven {
    fn new(node: Arc<SimNode>, events: Events) -> Self {
        let mut number = 0;
        node.change(|world, link, now, outbox| number = world.listen(link, events, now, outbox));
        Self { node, number }
    }
}

/// A node that is no longer driven ends its connection. The next use makes a new one.
impl Drop for Driven {
    fn drop(&mut self) {
        let number = self.number;
        self.node.change(|world, link, now, outbox| world.leave(link, number, now, outbox));
    }
}
