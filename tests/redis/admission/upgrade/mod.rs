//! An upgrade from the version without a quarantine, and back: the exact requests of that version,
//! mixed with handles of this one.

mod sets;

use redlock_quorum::{AcquireError, Redlock};
use redlock_testkit::{RedisServers, ServerOptions};

use crate::admission::{handle_on, run};
use crate::lab::{eventually, in_time, ms, secs, text};

/// The access list that the previous version recommended.
const RIGHTS_BEFORE: &str =
    "~locks:* +set +eval +evalsha +get +del +pttl +pexpire +info +client|id +client|kill";
/// The rights that this version needs in addition.
const RIGHTS_ADDED: &str = "~locks:redlock-quorum:1* +hgetall +hset +hdel +zcard +zadd \
                            +zrevrangebyscore +time +client|tracking +client|caching";
const EXTEND: &str = include_str!("extend.lua");
const RELEASE: &str = include_str!("release.lua");
const TTL: &str = "30000";

struct Lab {
    servers: RedisServers,
    urls: Vec<String>,
}

/// A client of the previous version, which queries each master with its own commands.
struct Old {
    masters: Vec<redis::Connection>,
}

impl Old {
    fn new(lab: &Lab) -> Self {
        let connect = |url: &String| {
            let mut master = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
            // Its handshake.
            let _: i64 = redis::cmd("CLIENT").arg("ID").query(&mut master).unwrap();
            let _: String = redis::cmd("INFO").arg("server").query(&mut master).unwrap();
            master
        };
        Self { masters: lab.urls.iter().map(connect).collect() }
    }

    /// Whether a majority says yes.
    fn ask(&mut self, words: &[&str]) -> bool {
        let said = self.masters.iter_mut().map(|master| {
            let mut command = redis::cmd(words[0]);
            words[1..].iter().for_each(|word| {
                command.arg(word);
            });
            match command.query::<redis::Value>(master).unwrap() {
                redis::Value::Okay => true,
                redis::Value::Int(number) => number == 1,
                _ => false,
            }
        });
        let granted = said.filter(|said| *said).count();
        granted > self.masters.len() / 2
    }

    fn acquire(&mut self, token: &str) -> bool {
        self.ask(&["SET", "locks:a", token, "NX", "PX", TTL])
    }

    fn extend(&mut self, token: &str) -> bool {
        self.ask(&["EVAL", EXTEND, "1", "locks:a", token, TTL])
    }

    fn release(&mut self, token: &str) -> bool {
        self.ask(&["EVAL", RELEASE, "1", "locks:a", token])
    }

    /// Works as usual if no other client holds the lock.
    fn serves(&mut self) -> bool {
        self.acquire("old") && self.extend("old") && self.release("old")
    }
}

impl Lab {
    fn new() -> Self {
        let servers = RedisServers::with(3, &ServerOptions::new().brand_new()).unwrap();
        let url = |name| format!("redis://app:secret@{name}");
        let urls = servers.iter().map(|server| url(server.name())).collect();
        let lab = Self { servers, urls };
        lab.grant(&format!("on >secret {RIGHTS_BEFORE}"));
        lab
    }

    fn grant(&self, rights: &str) {
        for server in self.servers.iter() {
            let user = ["ACL", "SETUSER", "app"].into_iter();
            run(server, &user.chain(rights.split_whitespace()).collect::<Vec<_>>());
        }
    }

    fn new_version(&self) -> Redlock {
        handle_on(self.urls.clone()).prefix("locks:").build().unwrap()
    }

    fn records(&self) -> Vec<Vec<String>> {
        let record = |server| text(server, &["HGETALL", "locks:redlock-quorum:1"]);
        self.servers.iter().map(record).collect()
    }
}

/// Each excludes the other, and is served when the other has released.
async fn take_turns(old: &mut Old, new: &Redlock) {
    let guard = in_time(new.lock("a").wait(secs(5)).into_future()).await.unwrap();
    assert!(!old.acquire("old"), "a new one holds it");
    old.release("old");
    guard.check().unwrap();
    in_time(guard.release()).await.unwrap();
    assert!(old.acquire("old") && old.extend("old"));
    let error = new.try_lock("a").await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    assert!(old.release("old"));
}

#[tokio::test]
async fn stepwise_upgrade_and_downgrade_lose_no_lock() {
    let lab = Lab::new();
    let mut old = Old::new(&lab);
    assert!(old.serves());

    // A client that is upgraded too early says what is missing, and takes nothing.
    let early = lab.new_version().try_lock("a").await.unwrap_err().to_string();
    assert!(early.to_lowercase().contains("hgetall"), "{early}");
    assert!(old.serves());

    // 1. The access list, while an old client holds a lock on connections that it has.
    assert!(old.acquire("old"));
    lab.grant(RIGHTS_ADDED);
    assert!(old.extend("old"));

    // 2. `init`. The lock of the old client is respected.
    let new = lab.new_version();
    assert_eq!(new.init().await.unwrap().admitted(), 3);
    let error = new.try_lock("a").await.unwrap_err();
    assert!(matches!(error, AcquireError::Held { .. }), "{error}");
    assert!(old.extend("old") && old.release("old"));

    // 3. Both versions together, in any order.
    for _ in 0..3 {
        take_turns(&mut old, &new).await;
    }

    // Back: the old ones ignore the record, and it stays.
    let before = lab.records();
    new.shutdown(secs(1)).await.unwrap();
    assert!(old.serves());
    assert_eq!(lab.records(), before);
    let again = lab.new_version();
    take_turns(&mut old, &again).await;

    // A master that restarts in the meantime votes immediately for the old clients, and later for
    // the new ones.
    lab.servers[0].restart_empty().unwrap();
    lab.grant(&format!("on >secret {RIGHTS_BEFORE} {RIGHTS_ADDED}"));
    assert!(Old::new(&lab).serves());
    let guard = in_time(again.lock("a").wait(secs(10)).min_copies(2).into_future()).await.unwrap();
    eventually("all masters vote again", || guard.copies() == 3).await;
    in_time(guard.release()).await.unwrap();
    again.shutdown(ms(1_000)).await.unwrap();
}
