//! `SimNode`: a simulated master that implements [`Node`], with a switch for every fault.

use std::fmt;
use std::future::pending;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use rand::RngExt;
use redlock_core::admission::{Identity, Init, Nonce, Outcome, RecordedSet, SetChange};
use redlock_core::{Answer, Cause, Clock, Events, Facts, Node, NodeEvent, Op, Role, VoteSlot};
use tokio::runtime::Handle;

use super::data::Data;
use super::master::Executed;
use super::world::{Outbox, World};

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
    world: Arc<Mutex<World>>,
    link: usize,
}

impl SimNode {
    /// Creates an empty master that shows the time of `clock` and makes its random choices from
    /// `seed`.
    pub fn new(name: impl Into<String>, seed: u64, clock: Clock) -> Arc<Self> {
        let mut world = World::new(clock, seed);
        let link = world.connect();
        Arc::new(Self { name: name.into(), world: Arc::new(Mutex::new(world)), link })
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
        let link = self.world().connect();
        Arc::new(Self { name: name.into(), world: self.world.clone(), link })
    }

    /// Sets how long requests and replies take from now on. Both default to zero. Messages on one
    /// connection keep their order, whatever delays are drawn.
    pub fn delay(&self, requests: RangeInclusive<Duration>, replies: RangeInclusive<Duration>) {
        self.change(|world, link, _| {
            world.links[link].request_delay = requests;
            world.links[link].reply_delay = replies;
        });
    }

    /// Sets whether requests are lost. Setting it back makes a new connection, as a client does
    /// after a period of silence.
    pub fn lose_requests(&self, lose: bool) {
        self.change(|world, link, outbox| {
            if std::mem::replace(&mut world.links[link].lose_requests, lose) && !lose {
                world.cut(link, outbox);
            }
        });
    }

    /// Sets whether replies are lost, so that no client learns the outcome. Setting it back makes a
    /// new connection, as a client does after a period of silence.
    pub fn lose_replies(&self, lose: bool) {
        self.change(|world, link, outbox| {
            if std::mem::replace(&mut world.links[link].lose_replies, lose) && !lose {
                world.cut(link, outbox);
            }
        });
    }

    /// Breaks the connection. There is no new one before [`SimNode::heal`].
    pub fn partition(&self) {
        self.change(|world, link, outbox| {
            world.links[link].partitioned = true;
            world.cut(link, outbox);
        });
    }

    /// Lets the client reach the master again.
    pub fn heal(&self) {
        self.change(|world, link, _| world.links[link].partitioned = false);
    }

    /// Stops the server process as `SIGSTOP` does: requests wait, and its clock continues.
    pub fn hold(&self) {
        self.change(|world, _, _| world.held = true);
    }

    /// Continues a held server process, which then handles the waiting requests.
    pub fn release(&self) {
        self.change(|world, _, _| world.held = false);
    }

    /// Stops listening: connections break, and new ones are refused. The keys remain.
    pub fn down(&self) {
        self.change(|world, _, outbox| {
            world.listening = false;
            world.cut_all(outbox);
        });
    }

    /// Listens again without a restart. For a new process, call [`SimNode::crash_and_restart`]
    /// first.
    pub fn up(&self) {
        self.change(|world, _, _| world.listening = true);
    }

    /// Ends the server process and starts another, with the keys of the old one (a persistent
    /// master that syncs every write) or without any. A master that is down stays down.
    pub fn crash_and_restart(&self, keep_data: bool) {
        self.change(|world, _, outbox| world.restart(keep_data, outbox));
    }

    /// Sets whether the server pushes changes of keys, as it does by default. Without it, the
    /// server behaves like Redis before 6.0. All connections are made again.
    pub fn set_tracking(&self, tracks: bool) {
        self.change(|world, _, outbox| {
            world.facts.tracks = tracks;
            world.facts.no_queue = (!tracks).then(|| Facts::PUSHES_NOTHING.into());
            world.cut_all(outbox);
        });
    }

    /// Sets whether this client has a quarantine, as it does by default. Without it, its ballots go
    /// to another set.
    pub fn set_quarantine(&self, on: bool) {
        self.change(|world, link, _| world.links[link].has_quarantine = on);
    }

    /// Answers every ballot, and every request for a score, with this error, such as `NOPERM ...`,
    /// and reports it on each connection; `None` ends that. All connections are made again.
    pub fn refuse_ballots(&self, error: Option<&str>) {
        self.change(|world, _, outbox| {
            world.master.ballot_error = error.map(str::to_owned);
            world.facts.no_ballots = error.map(str::to_owned);
            world.cut_all(outbox);
        });
    }

    /// Answers every entry into a queue, and every exit, with this error, such as `NOPERM ...`, and
    /// reports it on each connection; `None` ends that. All connections are made again.
    pub fn refuse_queues(&self, error: Option<&str>) {
        self.change(|world, _, outbox| {
            world.master.queue_error = error.map(str::to_owned);
            world.facts.no_queue = error.map(str::to_owned);
            world.cut_all(outbox);
        });
    }

    /// Returns how many tickets wait in a queue now: see [`SharedQueue::key_of`].
    ///
    /// [`SharedQueue::key_of`]: redlock_core::SharedQueue::key_of
    pub fn waiters(&self, queue: impl AsRef<[u8]>) -> u32 {
        let world = self.world();
        world.master.waiters(world.clock.now(), queue.as_ref())
    }

    /// Makes the server a replica, as `REPLICAOF` does, or a master again, with another identity. A
    /// replica answers every write with `READONLY`. All connections are made again, as clients do
    /// that find this out.
    pub fn set_role(&self, role: Role) {
        self.change(|world, _, outbox| world.set_role(role, outbox));
    }

    /// Deletes all keys and the record, as `FLUSHALL` does.
    pub fn flush(&self) {
        self.change(|world, _, _| world.master.flush());
    }

    /// Reports to all clients that the data may be lost although it is not, as a server does when
    /// another database is flushed.
    pub fn flush_another_database(&self) {
        self.change(|world, _, _| world.master.changes.push(None));
    }

    /// Its TIME now, in microseconds since 1970.
    pub fn time_us(&self) -> u64 {
        let world = self.world();
        u64::try_from(world.master.clock.micros(world.clock.now())).unwrap_or(0)
    }

    /// Sets the master's clock by so many milliseconds, forward or back.
    pub fn step_clock(&self, millis: i64) {
        self.change(|world, _, _| world.master.clock.step(millis));
    }

    /// Sets how fast the master's clock runs from now on. 1.0 is correct.
    pub fn set_clock_rate(&self, rate: f64) {
        self.change(|world, _, _| {
            let now = world.clock.now();
            world.master.clock.set_rate(now, rate);
        });
    }

    /// Answers every request with this error, such as `OOM ...`, and carries nothing out; `None`
    /// ends that.
    pub fn error_replies(&self, error: Option<&str>) {
        self.change(|world, _, _| world.master.error = error.map(str::to_owned));
    }

    /// Sets a key for `px` milliseconds, over any holder: what a stranger's `SET` does.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, px: u64) {
        self.change(|world, _, _| {
            let now = world.clock.now();
            world.master.put(now, key.as_ref(), Some(value.as_ref()), px);
        });
    }

    /// Sets a key that is not a string for `px` milliseconds, over any holder.
    pub fn put_other_type(&self, key: impl AsRef<[u8]>, px: u64) {
        self.change(|world, _, _| {
            let now = world.clock.now();
            world.master.put(now, key.as_ref(), None, px);
        });
    }

    /// Returns the value of a key, unless it has expired by the master's own clock.
    pub fn holder(&self, key: impl AsRef<[u8]>) -> Option<String> {
        let world = self.world();
        let value = world.master.holder(world.clock.now(), key.as_ref())?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// Returns the number of keys that have not expired by the master's own clock.
    pub fn keys(&self) -> usize {
        let world = self.world();
        world.master.count(world.clock.now())
    }

    /// Returns everything the master has executed so far, in order, for all clients.
    pub fn log(&self) -> Vec<Executed> {
        self.world().master.log.clone()
    }

    /// Admits the master as `redlock init` does, whatever its data: see
    /// [`Init`](redlock_core::admission::Init). The score of all its members is 31.
    ///
    /// # Panics
    /// Panics if clients without a quarantine have written to it.
    pub fn init(&self, max_ttl: Duration) {
        self.init_into(max_ttl, None);
    }

    /// Also records this set of masters.
    pub(super) fn init_into(&self, max_ttl: Duration, set: Option<RecordedSet>) {
        self.change(|world, _, _| {
            let facts = world.read(world.clock.now());
            let data = &mut world.master.data;
            // A simulated process has 40 digits.
            let Some(identity) = facts.identity else { return };
            let (expect, nonce) = (data.record.seen(), Nonce(world.rng.random()));
            let max_ttl = u64::try_from(max_ttl.as_millis()).unwrap_or(u64::MAX);
            let (floor, level) = (31, 0);
            let from = data.record.set.clone();
            let set = set.map(|to| SetChange { from, to });
            let order = Init {
                expect,
                identity,
                nonce,
                max_ttl,
                lower: true,
                floor,
                level,
                converts: false,
                set,
                until: u64::MAX,
            };
            let reply = data.init(facts.time_us.unwrap_or(0) / 1_000, &order);
            assert_eq!(reply.outcome, Outcome::Done, "{reply:?}");
        });
    }

    /// Returns the master's admission data.
    pub fn data(&self) -> Data {
        self.world().master.data.clone()
    }

    /// Changes the master's admission data without notifying any client, for example to restore an
    /// old snapshot or delete a ballot set. Nothing is pushed.
    pub fn edit_data(&self, edit: impl FnOnce(&mut Data)) {
        self.change(|world, _, _| edit(&mut world.master.data));
    }

    fn change(&self, change: impl FnOnce(&mut World, usize, &mut Outbox)) {
        let link = self.link;
        change_world(&self.world, |world, outbox| change(world, link, outbox));
    }

    /// No code that holds this lock can panic half-way through a change.
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node for SimNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn submit(&self, op: Op, slot: VoteSlot) {
        self.change(|world, link, outbox| {
            let now = world.clock.now();
            let obstacle = world.obstacle(link).or_else(|| world.obstacle_to(link, &op));
            match obstacle {
                Some(cause) => outbox.vote(slot, Answer::unsent(cause)),
                None => world.links[link].send(op, slot, now, &mut world.rng),
            }
        });
    }

    fn set_admitted(&self, run: Option<Identity>) {
        self.change(|world, link, _| world.links[link].admitted = run);
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
            .field("obstacle", &self.world().obstacle(self.link))
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
        node.change(|world, link, outbox| {
            let present = world.present(link).into_iter();
            present.for_each(|event| outbox.event((events.clone(), event)));
            let listeners = &mut world.links[link].listeners;
            number = listeners.last().map_or(0, |(last, _)| last + 1);
            listeners.push((number, events));
        });
        Self { node, number }
    }
}

/// A node that is no longer driven ends its connection. The next use makes a new one.
impl Drop for Driven {
    fn drop(&mut self) {
        self.node.change(|world, link, outbox| {
            let listeners = &mut world.links[link].listeners;
            let ended: Vec<_> =
                listeners.extract_if(.., |(number, _)| *number == self.number).collect();
            world.cut(link, outbox);
            let cause = Cause::NotConnected("it is not driven any more".into());
            let down = NodeEvent::Down { cause, retries_now: false };
            ended.into_iter().for_each(|(_, events)| outbox.event((events, down.clone())));
        });
    }
}

/// Changes the world, processes all due events, casts and reports it, and sets the timer.
fn change_world(world: &Arc<Mutex<World>>, change: impl FnOnce(&mut World, &mut Outbox)) {
    let mut outbox = Outbox::default();
    let mut locked = world.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut locked, &mut outbox);
    locked.settle(&mut outbox);
    wake_later(world, &mut locked);
    drop(locked);
    outbox.deliver();
}

/// Has the world woken when there is something to do, unless it will be by then.
fn wake_later(world: &Arc<Mutex<World>>, locked: &mut World) {
    let Some(due) = locked.next_due() else { return };
    // The runtime of the last timer may be gone, and the timer with it.
    let set = locked.timer.as_ref().is_some_and(|(at, task)| *at <= due && !task.is_finished());
    let Ok(runtime) = Handle::try_current() else { return };
    if set {
        return;
    }
    let (world, after) = (world.clone(), due.saturating_since(locked.clock.now()));
    let task = runtime.spawn(async move {
        tokio::time::sleep(after).await;
        change_world(&world, |world, _| world.timer = None);
    });
    if let Some((_, late)) = locked.timer.replace((due, task)) {
        late.abort();
    }
}
