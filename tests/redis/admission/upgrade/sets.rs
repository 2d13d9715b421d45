//! The scripts of the version without sets of masters, before and after the scripts of this one.
//! They ignore its fields and keep them.

use redlock_core::admission::{
    AdmissionOp, AdmissionReply, Admit, Begin, Init, Names, Nonce, Outcome, Record, RecordedSet,
    SetChange, SetId, Way,
};
use redlock_testkit::{RedisServer, ServerOptions};

use crate::admission::{field, handle};
use crate::connection::driven::Driven;
use crate::lab::{eventually, ms, secs, text};

/// A script of that version.
macro_rules! old {
    ($name:literal) => {
        concat!(
            include_str!("sets/record.lua"),
            include_str!($name),
            include_str!("sets/finish.lua")
        )
    };
}

const MAX_TTL: &str = "100";
const UNTIL: &str = "9007199254740991";

struct Lab {
    server: RedisServer,
    node: Driven,
    identity: String,
}

impl Lab {
    async fn new() -> Self {
        let server = RedisServer::with(&ServerOptions::new().brand_new()).unwrap();
        let mut node = Driven::within(&server.url(), "");
        let identity = node.up().await.identity.unwrap().to_string();
        Self { server, node, identity }
    }

    /// Runs a script of the former version with these arguments, and returns its outcome.
    fn old(&self, script: &str, words: &[&str]) -> i64 {
        let keys = ["2", "redlock-quorum:1", "redlock-quorum:1:ballots", UNTIL];
        let all: Vec<&str> =
            ["EVAL", script].into_iter().chain(keys).chain(words.iter().copied()).collect();
        let reply = self.server.command(&all).unwrap();
        match reply {
            redis::Value::Array(parts) => match parts[0] {
                redis::Value::Int(outcome) => outcome,
                ref other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn seen(&self) -> [String; 4] {
        ["run", "q:id", "q:nonce", "max_ttl"]
            .map(|name| field(&self.server, name).unwrap_or_default())
    }

    fn old_begin(&self, nonce: &str) -> i64 {
        let [run, id, known, max_ttl] = self.seen();
        let words = [&run, &id, &known, &max_ttl, self.identity.as_str(), nonce, MAX_TTL, "1"];
        self.old(old!("sets/begin.lua"), &words)
    }

    fn old_init(&self, nonce: &str, max_ttl: &str) -> i64 {
        let [run, id, known, held] = self.seen();
        let words = [
            &run,
            &id,
            &known,
            &held,
            self.identity.as_str(),
            nonce,
            max_ttl,
            "0",
            "31",
            "63",
            "0",
        ];
        self.old(old!("sets/init.lua"), &words)
    }

    async fn old_admit(&self, nonce: &str) {
        eventually("the quarantine is over", || {
            self.old(old!("sets/admit.lua"), &[nonce, &self.identity, "0", "31"]) == 0
        })
        .await;
    }

    async fn record(&mut self) -> Record {
        match self.node.admission(AdmissionOp::ReadFacts).await {
            Ok(AdmissionReply::Facts { facts, .. }) => *facts.record.unwrap(),
            said => panic!("{said:?}"),
        }
    }

    async fn script(&mut self, order: AdmissionOp) -> Record {
        match self.node.admission(order).await {
            Ok(AdmissionReply::Script(reply)) => {
                assert_eq!(reply.outcome, Outcome::Done);
                reply.record
            }
            said => panic!("{said:?}"),
        }
    }

    async fn new_init(&mut self, to: &RecordedSet) -> Record {
        let record = self.record().await;
        let (expect, from) = (record.seen(), record.set);
        let (identity, nonce) = (self.identity.parse().unwrap(), Nonce(9));
        let (max_ttl, lower, floor, level, converts) = (100, false, 31, 0, false);
        let (set, until) = (Some(SetChange { from, to: to.clone() }), u64::MAX);
        self.script(AdmissionOp::Init(Init {
            expect,
            identity,
            nonce,
            max_ttl,
            lower,
            floor,
            level,
            converts,
            set,
            until,
        }))
        .await
    }
}

fn set(id: u64) -> RecordedSet {
    RecordedSet { id: SetId(id), size: 2, names: Names::new(["10.0.0.1:6379", "/run/r 1"]) }
}

const NONCE: &str = "00000000000000aa";

#[tokio::test]
async fn former_scripts_keep_the_set_of_masters() {
    let mut lab = Lab::new().await;
    let set = set(7);
    assert_eq!(lab.new_init(&set).await.set, Some(set.clone()));
    // It raises `max_ttl` of an admitted master.
    assert_eq!(lab.old_init(NONCE, "120"), 0);
    let raised = lab.record().await;
    assert_eq!((raised.max_ttl, raised.set), (Some(120), Some(set.clone())));
    assert_eq!(lab.old_begin(NONCE), 0);
    let begun = lab.record().await;
    assert_eq!((begun.run, begun.quarantine.is_some(), begun.set), (None, true, Some(set.clone())));
    let noted = lab.old(old!("sets/note.lua"), &[NONCE, &"b".repeat(40), "5"]);
    assert_eq!((noted, lab.record().await.set), (0, Some(set.clone())));
    lab.old_admit(NONCE).await;
    let admitted = lab.record().await;
    assert_eq!((admitted.run.is_some(), admitted.set), (true, Some(set.clone())));
    // It admits a master in quarantine.
    assert_eq!(lab.old_begin("00000000000000bb"), 0);
    assert_eq!(lab.old_init("00000000000000cc", MAX_TTL), 0);
    let admitted = lab.record().await;
    assert_eq!((admitted.run.is_some(), admitted.set), (true, Some(set)));
}

#[tokio::test]
async fn former_records_get_a_set_of_masters() {
    let mut lab = Lab::new().await;
    assert_eq!(lab.old_init(NONCE, MAX_TTL), 0);
    assert_eq!(lab.record().await.set, None);
    assert_eq!(lab.new_init(&set(7)).await.set, Some(set(7)));
    let mut lab = Lab::new().await;
    assert_eq!(lab.old_begin(NONCE), 0);
    lab.old(old!("sets/note.lua"), &[NONCE, &"b".repeat(40), "5"]);
    let (nonce, identity, way) =
        (NONCE.parse().unwrap(), lab.identity.parse().unwrap(), Way::Known);
    let (floor, set, until) = (31, Some(set(8)), u64::MAX);
    let admit = Admit { nonce, identity, way, floor, set: set.clone(), until };
    let over = || text::<Vec<String>>(&lab.server, &["TIME"])[0].parse::<u64>().unwrap() * 1_000;
    let ends = field(&lab.server, "q:until").unwrap().parse::<u64>().unwrap();
    eventually("the quarantine is over", || over() > ends).await;
    assert_eq!(lab.script(AdmissionOp::Admit(admit)).await.set, set);
    let expect = lab.record().await.seen();
    let begin = Begin { expect, identity, nonce: Nonce(3), max_ttl: 100, is_outdated: true, until };
    assert_eq!(lab.script(AdmissionOp::Begin(begin)).await.set, set);
}

/// The previous version keeps fields of a record that it does not know.
#[tokio::test]
async fn records_without_a_set_are_accepted() {
    let servers = redlock_testkit::RedisServers::start(3).unwrap();
    for server in servers.iter() {
        server.command(&["HDEL", "redlock-quorum:1", "set", "names"]).unwrap();
    }
    let redlock = handle(&servers).build().unwrap();
    redlock.lock("a").wait(secs(5)).await.unwrap().release().await.unwrap();
    assert_eq!(redlock.list_warning(), None);
    assert_eq!(redlock.status("a").await.set, None);
    redlock.shutdown(ms(500)).await.ok();
}
