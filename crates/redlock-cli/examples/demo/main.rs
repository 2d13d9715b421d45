//! The main job on five real masters: `make demo`.
//!
//! Eight contenders, each a host that runs `redlock run` repeatedly, increment a number in a file:
//! read it, add one, write it back. Without a lock, most increments would be lost. In the middle,
//! one master is killed and another is paused. At the end, a host is paused for longer than its
//! lock lasts, and the store rejects its write.

mod late;
mod store;

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use redlock_testkit::RedisServers;

use store::Store;

const CONTENDERS: usize = 8;
const ADDITIONS: usize = 320;
/// A demonstration that takes longer than this is stuck, and says so.
const LIMIT: Duration = Duration::from_secs(180);

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(add), Some(file)) if add == "add" => add_one(Path::new(&file)),
        (Some(late), Some(file)) if late == "late" => late::host(Path::new(&file)),
        _ => demo(),
    }
}

/// The work of each host under the lock. Prints its start time for the statistics.
fn add_one(file: &Path) -> Result<()> {
    println!("{}", since_epoch().as_nanos());
    let (mut store, token) = (Store::open(file)?, late::token()?);
    match store.read(token)? {
        Ok(number) if store.write(number + 1, token)?.is_ok() => Ok(()),
        _ => bail!("fencing token {token} was refused"),
    }
}

fn demo() -> Result<()> {
    println!("Starting five throw-away Redis masters ...");
    let masters = RedisServers::start(5)?;
    let stage = Stage::new(&masters)?;
    println!(
        "{CONTENDERS} contenders add one to {} until it is {ADDITIONS}.",
        stage.file.display()
    );
    thread::scope(|scope| {
        for _ in 0..CONTENDERS {
            scope.spawn(|| stage.contend());
        }
        stage.direct(&masters);
    });
    let outcome = stage.report(&masters).and_then(|()| stage.show_a_late_write());
    fs::remove_file(&stage.file)?;
    outcome?;
    stage.show_the_way_on();
    Ok(())
}

/// The state that all contenders share.
struct Stage {
    redlock: PathBuf,
    nodes: String,
    file: PathBuf,
    begun: Instant,
    claimed: AtomicUsize,
    added: AtomicUsize,
    waits: Mutex<Vec<Duration>>,
    holds: Mutex<Vec<Duration>>,
    troubles: Mutex<Vec<String>>,
}

impl Stage {
    fn new(masters: &RedisServers) -> Result<Self> {
        let file = std::env::temp_dir().join(format!("redlock-demo-{}", std::process::id()));
        Store::create(&file)?;
        Ok(Self {
            redlock: redlock_binary()?,
            nodes: masters.urls().join(","),
            file,
            begun: Instant::now(),
            claimed: AtomicUsize::new(0),
            added: AtomicUsize::new(0),
            waits: Mutex::default(),
            holds: Mutex::default(),
            troubles: Mutex::default(),
        })
    }

    fn is_over(&self) -> bool {
        self.added() >= ADDITIONS || self.begun.elapsed() > LIMIT
    }

    fn added(&self) -> usize {
        self.added.load(Ordering::SeqCst)
    }

    /// Runs one host. An increment is complete if its command exits with 0, and is retried until
    /// then. The host cannot know whether a failed command had incremented already, so no command
    /// may fail.
    fn contend(&self) {
        while !self.is_over() && self.claimed.fetch_add(1, Ordering::SeqCst) < ADDITIONS {
            while self.begun.elapsed() <= LIMIT {
                match self.add_under_lock() {
                    Ok((wait, hold)) => {
                        self.note(&self.waits, wait);
                        self.note(&self.holds, hold);
                        self.added.fetch_add(1, Ordering::SeqCst);
                        break;
                    }
                    Err(trouble) => self.note(&self.troubles, format!("{trouble:#}")),
                }
            }
        }
    }

    /// How long the host waited for the lock, and how long it then had it.
    fn add_under_lock(&self) -> Result<(Duration, Duration)> {
        let asked = since_epoch();
        let output = Command::new(&self.redlock)
            .args(["run", "demo", "--wait", "60s", "--"])
            .arg(std::env::current_exe()?)
            .arg("add")
            .arg(&self.file)
            .env("REDLOCK_NODES", &self.nodes)
            .env("REDLOCK_CONFIG", "/dev/null")
            .stdin(Stdio::null())
            .output()?;
        let ended = since_epoch();
        began(&output).map(|began| (began.saturating_sub(asked), ended.saturating_sub(began)))
    }

    fn note<T>(&self, notes: &Mutex<Vec<T>>, note: T) {
        // A contender that panicked has left whole notes.
        notes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(note);
    }

    /// Shows how it goes, and lets two masters fail.
    fn direct(&self, masters: &RedisServers) {
        let mut fates = ["up"; 5];
        while !self.is_over() {
            if fates[1] == "up" && self.added() >= ADDITIONS / 3 {
                masters[1].kill();
                fates[1] = "KILLED";
            }
            if fates[3] == "up" && self.added() >= ADDITIONS / 2 && masters[3].pause().is_ok() {
                fates[3] = "PAUSED";
            }
            self.show(&fates);
            thread::sleep(Duration::from_millis(50));
        }
        self.show(&fates);
        println!();
    }

    fn show(&self, fates: &[&str; 5]) {
        let line =
            format!("  {:>3}/{ADDITIONS} added   masters: {}", self.added(), fates.join(" "));
        if std::io::stdout().is_terminal() {
            print!("\r{line}");
            // An unprinted line is no reason to stop.
            let _ = std::io::stdout().flush();
        } else if self.is_over() {
            print!("{line}");
        }
    }

    fn report(&self, masters: &RedisServers) -> Result<()> {
        let number = Store::open(&self.file)?.number()?;
        let (waits, holds) = (sorted(&self.waits), sorted(&self.holds));
        let troubles = self.troubles.lock().unwrap_or_else(|e| e.into_inner());
        ensure!(
            waits.len() == ADDITIONS,
            "only {} additions in {LIMIT:?}: {troubles:?}",
            waits.len()
        );
        println!("The file says {number}: {}.", verdict(number));
        println!("  attempts to lock    {}", attempts(masters)?);
        println!("  runs that failed    {}", troubles.len());
        println!("  from `redlock run` to its command, with seven others in the way:");
        println!("    p50 {:.1?}   p99 {:.1?}", waits[ADDITIONS / 2], waits[ADDITIONS * 99 / 100]);
        let hold = holds[ADDITIONS / 2];
        let others = u32::try_from(CONTENDERS - 1)?;
        println!("    ideal {:.1?}: {others} others, {hold:.1?} each (p50)", hold * others);
        for trouble in troubles.iter().take(3) {
            println!("  {trouble}");
        }
        ensure!(number == ADDITIONS as u64, "additions were lost");
        Ok(())
    }

    fn show_the_way_on(&self) {
        println!("To go on:\n  {} dev      # five masters to play with", self.redlock.display());
        println!("  README.md, docs/GUIDE.md and `cargo doc --open -p redlock-quorum`");
    }

    fn show_a_late_write(&self) -> Result<()> {
        late::show(&self.redlock, &self.nodes, &self.file)
    }
}

fn sorted(notes: &Mutex<Vec<Duration>>) -> Vec<Duration> {
    // A contender that panicked has left whole notes.
    let mut notes = notes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    notes.sort_unstable();
    notes
}

fn verdict(number: u64) -> &'static str {
    if number == ADDITIONS as u64 {
        "nothing was lost, with one master killed and one paused"
    } else {
        "ADDITIONS WERE LOST"
    }
}

/// Returns when the command started. Fails if it did not exit with 0.
fn began(output: &Output) -> Result<Duration> {
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    let nanos = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    Ok(Duration::from_nanos(nanos))
}

/// Returns the number of attempts. Every attempt sends one request to each master, and the last
/// master was never down.
fn attempts(masters: &RedisServers) -> Result<String> {
    let stats = masters[4].command(&["INFO", "commandstats"])?;
    let stats: String = redis::from_redis_value(stats).context("INFO is no text")?;
    let calls = stats.split("cmdstat_set:calls=").nth(1).and_then(|rest| rest.split(',').next());
    Ok(calls.unwrap_or("0").to_owned())
}

/// Cargo builds the command into the same directory as this example.
fn redlock_binary() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let binary = here.ancestors().nth(2).map(|target| target.join("redlock"));
    let binary = binary.context("this example is not where cargo puts examples")?;
    ensure!(binary.is_file(), "{} is missing: run `make demo`, which builds it", binary.display());
    Ok(binary)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
