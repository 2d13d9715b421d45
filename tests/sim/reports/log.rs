//! The log: a lock can be followed from its request to its release, warnings are rare, and a
//! subscriber may use the handle.

use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, Mutex, Once};

use redlock_quorum::{Guard, Redlock};
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::arena::{RESOURCE, TTL, full, handle, hold, let_go, masters, ms, settle};

/// One line of the log.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(super) level: Level,
    pub(super) message: String,
    pub(super) fields: Vec<(&'static str, String)>,
}

impl Line {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(field, _)| *field == name);
        field.map(|(_, value)| value.as_str())
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}"))),
        }
    }
}

/// A subscriber that rejects each line, but wants to decide on each.
struct Silent;

impl Subscriber for Silent {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Sends the log lines of this thread to `subscriber` until the guard is dropped.
///
/// If only one thread has a subscriber, `tracing` lets the first thread at a callsite decide for
/// the process whether its lines are wanted, so a parallel test would silence it. With a subscriber
/// for the whole process, each thread decides.
pub(super) fn record(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    static EVERYWHERE: Once = Once::new();
    EVERYWHERE.call_once(|| tracing::subscriber::set_global_default(Silent).unwrap());
    tracing::subscriber::set_default(subscriber)
}

/// Keeps every line. A span is a line with its name.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Line>>>);

impl Log {
    /// Records the log lines of this thread until the guard is dropped.
    pub(crate) fn begin(level: LevelFilter) -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::registry().with(log.clone().with_filter(level));
        (log, record(subscriber))
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }

    /// The messages of the lines that have this field.
    fn with(&self, name: &str, value: &str) -> Vec<String> {
        let lines = self.lines().into_iter();
        lines.filter(|line| line.field(name) == Some(value)).map(|line| line.message).collect()
    }

    pub(crate) fn warnings(&self, message: &str) -> Vec<Line> {
        let is_wanted = |line: &Line| line.level == Level::WARN && line.message == message;
        self.lines().into_iter().filter(is_wanted).collect()
    }

    fn write(&self, level: Level, message: &str, record: impl FnOnce(&mut Line)) {
        let mut line = Line { level, message: message.into(), fields: Vec::new() };
        record(&mut line);
        self.0.lock().unwrap().push(line);
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.write(*event.metadata().level(), "", |line| event.record(line));
    }

    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let name = format!("span {}", span.metadata().name());
        self.write(*span.metadata().level(), &name, |line| span.record(line));
    }
}

/// Checks that the messages contain these in this order.
fn assert_in_order(messages: &[String], expected: &[&str]) {
    let mut left = messages.iter();
    for one in expected {
        assert!(left.any(|message| message == one), "{one:?} is missing in {messages:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn log_follows_a_lock_from_request_to_release() {
    let (log, _recording) = Log::begin(LevelFilter::TRACE);
    let (masters, redlock) = masters(3);
    let other = redlock.lock("another").await.unwrap();
    let guard = full(&redlock, &masters).await;
    let token = guard.token().to_string();
    sleep(TTL / 2).await;
    guard.extend(TTL).await.unwrap();
    guard.release().await.unwrap();
    other.release().await.unwrap();
    settle().await;

    let of_resource = log.with("resource", RESOURCE);
    assert_in_order(&of_resource, &["span acquire", "request", "attempt", "acquired"]);
    let of_token = log.with("token", &token);
    assert_in_order(
        &of_token,
        &[
            "attempt",
            "vote",
            "decided",
            "acquired",
            "extension",
            "vote",
            "extended",
            "span extend",
            "extended",
            "span release",
            "release",
            "vote",
            "released",
        ],
    );
    let lines = log.lines();
    let votes = lines.iter().filter(|line| line.message == "vote");
    let votes: Vec<&Line> = votes.filter(|line| line.field("token") == Some(&token)).collect();
    assert!(votes.len() >= 9, "an attempt, extensions and a release, three masters each");
    for vote in votes {
        for field in ["node", "to", "verdict", "latency"] {
            assert!(vote.field(field).is_some(), "{field}: {vote:?}");
        }
    }
    let request = lines.iter().find(|line| line.message == "attempt").unwrap().field("request");
    assert_eq!(log.with("request", request.unwrap()), ["request", "attempt"]);
}

#[tokio::test(start_paused = true)]
async fn log_follows_a_wait_from_refusal_to_push() {
    let (log, _recording) = Log::begin(LevelFilter::TRACE);
    let (masters, holder) = masters(3);
    let client = masters.another_client();
    let redlock = handle(&client).seed(1).build().unwrap();
    let guard = holder.lock(RESOURCE).await.unwrap();
    let seen = log.lines().len();
    let waiting = tokio::spawn(redlock.lock(RESOURCE).wait_forever().into_future());
    sleep(ms(100)).await;
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    settle().await;
    let messages: Vec<String> =
        log.lines().split_off(seen).into_iter().map(|line| line.message).collect();
    assert_in_order(
        &messages,
        &["request", "attempt", "decided", "wait", "watch", "push", "attempt", "acquired"],
    );
}

#[tokio::test(start_paused = true)]
async fn loss_is_a_warning_with_reason_and_votes() {
    let (log, _recording) = Log::begin(LevelFilter::WARN);
    let (masters, redlock) = masters(3);
    let guard = full(&redlock, &masters).await;
    let token = guard.token().to_string();
    masters.iter().for_each(|master| master.put(RESOURCE, "stranger", 100_000));
    guard.lost().await;
    settle().await;
    drop(guard);
    settle().await;
    let losses = log.warnings("lost");
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert_eq!(losses[0].field("token"), Some(token.as_str()));
    assert!(losses[0].field("reason").unwrap().contains("still have the key"), "{losses:?}");
    assert_eq!(losses[0].field("votes").unwrap().matches("held").count(), 2, "{losses:?}");
}

#[tokio::test(start_paused = true)]
async fn master_up_and_down_are_logged_once_each() {
    let (log, _recording) = Log::begin(LevelFilter::INFO);
    let (masters, redlock) = masters(3);
    full(&redlock, &masters).await.release().await.unwrap();
    masters[1].down();
    sleep(ms(20_000)).await;
    masters[1].up();
    redlock.lock(RESOURCE).await.unwrap().release().await.unwrap();
    sleep(ms(2_000)).await;
    let node = log.with("node", "sim-1:6379");
    assert_eq!(node, ["master up", "master down", "master up"]);
    let down = &log.warnings("master down")[0];
    assert_eq!(down.field("cause"), Some("connection refused"));
}

#[tokio::test(start_paused = true)]
async fn master_without_pushes_is_logged_once() {
    let (log, _recording) = Log::begin(LevelFilter::WARN);
    let (masters, redlock) = masters(3);
    masters[1].set_tracking(false);
    full(&redlock, &masters).await.release().await.unwrap();
    for _ in 0..5 {
        masters[1].down();
        sleep(ms(3_000)).await;
        masters[1].up();
        sleep(ms(3_000)).await;
    }
    let is_said = |line: &Line| line.message.contains("does not report key changes");
    let said: Vec<Line> = log.lines().into_iter().filter(is_said).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(said[0].field("node"), Some("sim-1:6379"));
}

#[tokio::test(start_paused = true)]
async fn list_differing_by_one_is_warned_of_once() {
    let (log, _recording) = Log::begin(LevelFilter::WARN);
    let masters = redlock_testkit::SimNodes::new(5, 0);
    masters.init(TTL);
    let on = |count: usize| {
        let nodes = masters.another_client().nodes().into_iter().take(count).collect();
        Redlock::builder().masters(nodes).clock(masters.clock()).max_ttl(TTL).ttl(TTL).build()
    };
    let four = on(4).unwrap();
    for _ in 0..3 {
        four.try_lock(RESOURCE).await.unwrap().release().await.unwrap();
        sleep(ms(100_000)).await;
    }
    let lines = |words: &str| {
        let is_ours = |line: &Line| line.message.contains(words);
        log.lines().into_iter().filter(is_ours).collect::<Vec<_>>()
    };
    let said = lines(
        "the list of masters may be wrong, or a change is under way: it differs from the recorded set \
         by one master",
    );
    assert_eq!(said.len(), 1, "{said:?}");
    let lists = said[0].field("lists").unwrap();
    assert!(lists.starts_with("it belongs to a set of 5 masters (sim-0:6379, "), "{lists}");
    assert!(lines("master does not vote").is_empty());
    on(2).unwrap().try_lock(RESOURCE).await.unwrap_err();
    let said = lines("master does not vote");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].field("cause").unwrap().contains("and this client lists 2"), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn thousand_losses_are_logged_in_few_lines() {
    let (log, _recording) = Log::begin(LevelFilter::WARN);
    let (masters, redlock) = masters(3);
    let request = |name: usize| redlock.lock(format!("k{name}")).into_future();
    let guards = futures::future::join_all((0..1_000).map(request)).await;
    let guards: Vec<Guard> = guards.into_iter().map(Result::unwrap).collect();
    hold(&masters);
    sleep(TTL * 3).await;
    assert!(guards.iter().all(|guard| !guard.is_held()));
    let_go(&masters);
    let losses = log.warnings("lost");
    let suppressed = losses.iter().map(|line| line.field("suppressed").unwrap());
    let suppressed: u64 = suppressed.map(|number| number.parse::<u64>().unwrap()).sum();
    let with_a_lock = losses.iter().filter(|line| line.field("resource").is_some()).count();
    assert!(losses.len() <= 3, "{losses:?}");
    assert_eq!(suppressed + with_a_lock as u64, 1_000);
}
