//! The procedures of `docs/OPERATIONS.md` that change a list of masters, run as they are written
//! there, under load.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use std::{env, thread};

use redlock_quorum::{Clock, blocking};
use redlock_testkit::{History, RedisServers, ServerOptions, check};

use crate::lists::set;
use crate::support::{Answer, Scratch, answer_of, poll, undisturbed};

const OPERATIONS: &str = include_str!("../../../../docs/OPERATIONS.md");

/// Returns the first block of commands after a heading.
fn block(heading: &str) -> &'static str {
    let from = OPERATIONS.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}"));
    let rest = OPERATIONS[from..].split("```sh\n").nth(1).unwrap();
    rest.split("```").next().unwrap()
}

const MAX_TTL: Duration = Duration::from_secs(3);
/// In place of the 70 s of the document, for this `max_ttl`: a quarantine and some more.
const PAUSE: &str = "6";
/// How many contenders there are: one half has the list of the line before.
const CONTENDERS: usize = 4;

/// The effect of a procedure on clients that run all the time.
struct Procedure {
    servers: RedisServers,
    host: Scratch,
    clock: Clock,
    history: Arc<History>,
    /// The previous list and the present one.
    lists: Arc<RwLock<[String; 2]>>,
    /// How many rounds each contender has begun.
    rounds: Arc<[AtomicUsize; CONTENDERS]>,
    /// How often each half of the contenders got the lock on these lists.
    wins: Arc<[AtomicUsize; 2]>,
    is_over: Arc<AtomicBool>,
    contenders: Vec<thread::JoinHandle<()>>,
}

impl Procedure {
    /// So many servers, of which the first are listed.
    fn start(name: &str, servers: usize, listed: usize) -> Self {
        let options = ServerOptions::new().brand_new().max_ttl(MAX_TTL);
        let servers = RedisServers::with(servers, &options).unwrap();
        let list = servers.urls()[..listed].join(",");
        let host = Scratch::new(name);
        symlink(env!("CARGO_BIN_EXE_redlock"), host.file("redlock")).unwrap();
        let clock = Clock::system();
        let mut procedure = Self {
            servers,
            host,
            history: Arc::new(History::new(clock.clone())),
            clock,
            lists: Arc::new(RwLock::new([list.clone(), list.clone()])),
            rounds: Arc::default(),
            wins: Arc::default(),
            is_over: Arc::default(),
            contenders: Vec::new(),
        };
        let first = procedure.shell(&format!("export REDLOCK_NODES={list}; redlock init --yes"));
        assert_eq!(first.code, 0, "{first:?}");
        procedure.contenders = (0..CONTENDERS).map(|number| procedure.contend(number)).collect();
        procedure.past("at the start");
        procedure
    }

    /// Takes the lock again and again, with the list of its half, until all is over.
    fn contend(&self, number: usize) -> thread::JoinHandle<()> {
        let half = number % 2;
        let (lists, wins, rounds) = (self.lists.clone(), self.wins.clone(), self.rounds.clone());
        let (is_over, clock) = (self.is_over.clone(), self.clock.clone());
        let log = self.history.contender(number, "k");
        thread::spawn(move || {
            let mut handles: BTreeMap<String, blocking::Redlock> = BTreeMap::new();
            let mut round = 0;
            while !is_over.load(Ordering::SeqCst) {
                rounds[number].fetch_add(1, Ordering::SeqCst);
                let list = lists.read().unwrap()[half].clone();
                // A process with another list is another process.
                handles.retain(|known, _| *known == list);
                let handle = handles.entry(list.clone()).or_insert_with(|| handle(&list, &clock));
                log.invoke();
                let Ok(guard) = handle.lock("k").wait(Duration::from_secs(2)).acquire() else {
                    log.refused();
                    continue;
                };
                round += 1;
                let token = format!("{number}/{round}");
                log.granted(&token, clock.now().saturating_add(guard.remaining()));
                thread::sleep(Duration::from_millis(5));
                log.released(&token);
                if lists.read().unwrap()[half] == list {
                    wins[half].fetch_add(1, Ordering::SeqCst);
                }
                let _ = guard.release();
                thread::sleep(Duration::from_millis(5));
            }
        })
    }

    /// Both halves get the lock with the lists that they have now.
    fn past(&self, when: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        self.wins.iter().for_each(|wins| wins.store(0, Ordering::SeqCst));
        while self.wins.iter().any(|wins| wins.load(Ordering::SeqCst) < 3) {
            assert!(Instant::now() < deadline, "{when}: {:?}", self.wins);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Deploys a list to one half of the contenders. Before that, the other half gets the present
    /// one: a client with the list of the line before last shares no majority with the new list.
    fn deploy(&self, list: String) {
        let present = self.lists.read().unwrap()[1].clone();
        self.lists.write().unwrap()[0] = present;
        let begun = || self.rounds.iter().map(|rounds| rounds.load(Ordering::SeqCst));
        let before: Vec<_> = begun().collect();
        poll("all contenders have the present list", || {
            begun().zip(&before).all(|(now, before)| now > before + 1).then_some(())
        });
        self.lists.write().unwrap()[1] = list;
    }

    /// Runs the lines of a procedure. The list of each is deployed before it runs.
    fn follow(self, heading: &str) {
        let functions = block("## Adding and removing masters");
        assert!(functions.contains("sleep 70"), "{functions}");
        for line in block(heading).lines() {
            let line = self.addressed(line);
            let list = line.split(' ').nth(1).unwrap().to_owned();
            self.deploy(list);
            let functions = functions.replace("sleep 70", &format!("sleep {PAUSE}"));
            let answer = self.shell(&format!("{functions}\n{line}"));
            assert_eq!(answer.code, 0, "{line}: {answer:?}");
            self.past(&format!("after {line}"));
        }
        let present = self.lists.read().unwrap()[1].clone();
        let members: Vec<_> =
            self.servers.iter().filter(|one| present.contains(&one.url())).collect();
        let recorded: Vec<_> = members.iter().map(|server| set(server)).collect();
        assert_eq!(members.len(), present.split(',').count());
        assert!(recorded.iter().all(|set| set.is_some() && *set == recorded[0]), "{recorded:?}");
        self.is_over.store(true, Ordering::SeqCst);
        for contender in self.contenders {
            contender.join().unwrap();
        }
        let claims = check(&self.history.records()).unwrap_or_else(|overlap| panic!("{overlap}"));
        assert!(claims >= 3 * CONTENDERS, "{claims}");
    }

    /// Replaces the addresses of the document with the addresses of the servers.
    fn addressed(&self, line: &str) -> String {
        let urls = self.servers.urls();
        let replace = |line: String, (place, url): (usize, &String)| {
            line.replace(&format!("redis://10.0.0.{}", place + 1), url)
        };
        urls.iter().enumerate().fold(line.to_owned(), replace)
    }

    fn shell(&self, text: &str) -> Answer {
        let mut command: Command = undisturbed("sh");
        let path = format!("{}:{}", self.host.file("").display(), env::var("PATH").unwrap());
        command.args(["-c", text]).env("PATH", path).current_dir(Path::new("/"));
        command.env("REDLOCK_MAX_TTL", "3s").env("REDLOCK_NODE_TIMEOUT", "700ms");
        answer_of(&mut command)
    }
}

fn handle(list: &str, clock: &Clock) -> blocking::Redlock {
    let builder = redlock_quorum::Redlock::builder().nodes(list.split(','));
    let builder = builder.max_ttl(MAX_TTL).ttl(MAX_TTL).node_timeout(Duration::from_millis(700));
    builder.clock(clock.clone()).build_blocking().unwrap()
}

#[test]
fn replacing_a_dead_master_lets_old_and_new_clients_work() {
    let procedure = Procedure::start("replace", 6, 5);
    procedure.servers[4].kill();
    procedure.follow("### Replace a dead master");
}

#[test]
fn growing_from_three_to_five_lets_old_and_new_clients_work() {
    Procedure::start("grow", 5, 3).follow("### Grow from three masters to five");
}

#[test]
fn shrinking_from_five_to_three_lets_old_and_new_clients_work() {
    Procedure::start("shrink", 5, 5).follow("### Shrink from five masters to three");
}

#[test]
fn moving_all_masters_lets_old_and_new_clients_work() {
    Procedure::start("move", 6, 3).follow("### Move all masters");
}
