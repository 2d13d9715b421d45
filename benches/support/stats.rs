//! Measurements of a round, and derived values: percentiles, ratios, rows of a table.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use redlock_testkit::RedisServer;
use rustix::time::{ClockId, clock_gettime};

/// When clients stop.
#[derive(Clone, Copy)]
pub enum Stop {
    /// After so many locks.
    After(usize),
    /// With the lock during which this instant passes.
    At(Instant),
}

impl Stop {
    pub fn is_over(self, locks: usize, now: Instant) -> bool {
        match self {
            Self::After(wanted) => locks >= wanted,
            Self::At(end) => now >= end,
        }
    }
}

/// How long each lock took, in nanoseconds: to acquire, and to acquire and release.
#[derive(Default)]
pub struct Samples {
    pub acquire: Vec<u64>,
    pub cycle: Vec<u64>,
}

impl Samples {
    pub fn push(&mut self, since: Instant, acquired: Instant, released: Instant) {
        self.acquire.push(nanos(acquired - since));
        self.cycle.push(nanos(released - since));
    }

    pub fn len(&self) -> usize {
        self.cycle.len()
    }

    pub fn append(&mut self, mut other: Self) {
        self.acquire.append(&mut other.acquire);
        self.cycle.append(&mut other.cycle);
    }
}

/// The results of one contestant in one round.
#[derive(Default)]
pub struct Outcome {
    pub samples: Samples,
    pub wall: Duration,
    /// Of this process, proxies included.
    pub cpu: Duration,
}

impl Outcome {
    /// Microseconds below which this part of the acquisitions stays.
    pub fn acquire(&self, part: f64) -> f64 {
        percentile(&self.samples.acquire, part) / 1e3
    }

    /// The same for acquiring and releasing.
    pub fn cycle(&self, part: f64) -> f64 {
        percentile(&self.samples.cycle, part) / 1e3
    }

    /// The same for releasing.
    pub fn release(&self, part: f64) -> f64 {
        let Samples { acquire, cycle } = &self.samples;
        let release: Vec<u64> =
            cycle.iter().zip(acquire).map(|(cycle, acquire)| cycle - acquire).collect();
        percentile(&release, part) / 1e3
    }

    /// Locks acquired and released in a second.
    pub fn rate(&self) -> f64 {
        self.samples.len() as f64 / self.wall.as_secs_f64()
    }

    /// Microseconds of this process's CPU for each lock.
    pub fn cpu_per_lock(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.samples.len() as f64
    }
}

/// Returns the value below which `part` (0 to 1) of the samples are.
pub fn percentile(samples: &[u64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).map_or(f64::NAN, |value| *value as f64)
}

/// CPU time that all threads of this process have used.
pub fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    // Neither is ever negative: this clock starts with the process.
    Duration::new(used.tv_sec.cast_unsigned(), used.tv_nsec as u32)
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// Returns the directory for tables and pictures, inside cargo's target directory.
pub fn folder() -> anyhow::Result<PathBuf> {
    let built = std::env::current_exe()?;
    let target = built.ancestors().nth(3).context("the bench is not in a target folder")?;
    let folder = target.join("redlock-bench");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The rows of one bench: printed as they come, and kept in a file for `together`.
pub struct Rows {
    file: fs::File,
}

/// The columns of a table that compares contestants with each other.
pub const RATIOS: [&str; 3] = ["redlock / floor", "rslock / floor", "redlock / rslock"];

impl Rows {
    /// Begins the table of a bench; `columns` are those after the first.
    pub fn begin(bench: &str, columns: [&str; 3]) -> anyhow::Result<Self> {
        let mut file = fs::File::create(folder()?.join(format!("{bench}.md")))?;
        let [a, b, c] = columns;
        writeln!(file, "| {bench} | {a} | {b} | {c} |\n|---|---|---|---|")?;
        Ok(Self { file })
    }

    /// Adds one row of [`RATIOS`], from the figures of every round: floor, ours, `rslock`.
    pub fn compare(
        &mut self,
        what: &str,
        unit: &str,
        rounds: &[Vec<f64>; 3],
    ) -> anyhow::Result<()> {
        let [floor, ours, rslock] = rounds;
        let ratios = [Spread::of(ours, floor), Spread::of(rslock, floor), Spread::of(ours, rslock)];
        let figures = rounds.each_ref().map(|rounds| {
            median(rounds).map_or_else(|| "-".to_owned(), |figure| format!("{figure:.1}"))
        });
        println!("{what} (floor, redlock, rslock: {} {unit})", figures.join(", "));
        self.write(what, &ratios)
    }

    /// Adds one row that compares each contestant with itself: `after` with `before`, round by
    /// round.
    pub fn against_itself(
        &mut self,
        what: &str,
        after: &[Vec<f64>; 3],
        before: &[Vec<f64>; 3],
    ) -> anyhow::Result<()> {
        let ratios = [0, 1, 2].map(|who| Spread::of(&after[who], &before[who]));
        println!("{what}");
        self.write(what, &ratios)
    }

    /// Adds one row of figures that are not ratios of contestants.
    pub fn row(&mut self, what: &str, cells: [String; 3]) -> anyhow::Result<()> {
        let [a, b, c] = cells;
        println!("{what}\n    {a}, {b}, {c}");
        Ok(writeln!(self.file, "| {what} | {a} | {b} | {c} |")?)
    }

    /// Adds one row on the cost of a choice for ours and the floor, from the figures of every
    /// round: ours without and with it, the floor without and with it.
    pub fn relate(&mut self, what: &str, unit: &str, rounds: &[Vec<f64>; 4]) -> anyhow::Result<()> {
        let [ours, chosen, floor, raw] = rounds;
        let of = |upper: &[f64], lower: &[f64]| -> Vec<f64> {
            upper.iter().zip(lower).map(|(upper, lower)| upper / lower).collect()
        };
        let (ours_costs, floor_costs) = (of(chosen, ours), of(raw, floor));
        let ratios = [
            Spread::of(chosen, ours),
            Spread::of(raw, floor),
            Spread::of(&ours_costs, &floor_costs),
        ];
        let figures = rounds.each_ref().map(|rounds| {
            median(rounds).map_or_else(|| "-".to_owned(), |figure| format!("{figure:.1}"))
        });
        println!(
            "{what} (redlock plain, fenced, floor plain, fenced: {} {unit})",
            figures.join(", ")
        );
        self.write(what, &ratios)
    }

    fn write(&mut self, what: &str, ratios: &[Option<Spread>; 3]) -> anyhow::Result<()> {
        let cell = |ratio: &Option<Spread>| {
            ratio.as_ref().map_or_else(|| "-".to_owned(), Spread::to_string)
        };
        let [a, b, c] = ratios.each_ref().map(cell);
        println!("    {a}, {b}, {c}");
        Ok(writeln!(self.file, "| {what} | {a} | {b} | {c} |")?)
    }
}

/// The ratio of two contestants over all rounds.
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(upper: &[f64], lower: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> =
            upper.iter().zip(lower).map(|(upper, lower)| upper / lower).collect();
        Some(Self {
            median: median(&ratios)?,
            min: ratios.iter().copied().reduce(f64::min)?,
            max: ratios.iter().copied().reduce(f64::max)?,
        })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { median, min, max } = self;
        write!(f, "**{median:.2}**")?;
        if min < max { write!(f, " ({min:.2} to {max:.2})") } else { Ok(()) }
    }
}

/// CPU seconds that all masters have used since they were started.
pub fn server_cpu(servers: &[RedisServer]) -> anyhow::Result<f64> {
    servers.iter().map(used).sum()
}

fn used(server: &RedisServer) -> anyhow::Result<f64> {
    let info: String = redis::from_redis_value(server.command(&["INFO", "cpu"])?)?;
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        let seconds: f64 = line.context("INFO cpu has no such field")?.trim().parse()?;
        anyhow::Ok(seconds)
    };
    Ok(field("used_cpu_user:")? + field("used_cpu_sys:")?)
}

pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}
