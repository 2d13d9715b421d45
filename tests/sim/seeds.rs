//! Reproducible runs: each in its own paused runtime, from one seed.

use std::ops::Range;

use tokio::runtime::Builder;

/// The variable that names the seeds to run: one, or `FROM..TO`.
const SEED: &str = "REDLOCK_SEED";

/// Runs `run` in virtual time.
pub(crate) fn simulate<R>(run: impl Future<Output = R>) -> R {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(run)
}

/// Runs `run` for every seed, or for those in `REDLOCK_SEED`, and prints how to replay the first
/// that fails.
pub(crate) fn each<F>(test: &str, seeds: Range<u64>, run: impl Fn(u64) -> F)
where
    F: Future<Output = anyhow::Result<()>>,
{
    let seeds = match std::env::var(SEED) {
        Ok(given) => range(&given).expect("REDLOCK_SEED is a number, or FROM..TO"),
        Err(_) => seeds,
    };
    for seed in seeds {
        let _replay = Replay { test, seed };
        if let Err(error) = simulate(run(seed)) {
            panic!("seed {seed}: {error:#}");
        }
        if let Err(differs) = crate::replay::check() {
            panic!("seed {seed}: a client does not repeat itself: {differs}");
        }
    }
}

fn range(given: &str) -> Option<Range<u64>> {
    match given.split_once("..") {
        Some((from, to)) => Some(from.parse().ok()?..to.parse().ok()?),
        None => given.parse().ok().map(|seed| seed..seed + 1),
    }
}

/// Prints how to run one seed again when its run ends in any panic.
struct Replay<'a> {
    test: &'a str,
    seed: u64,
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { test, seed } = self;
            eprintln!("replay it with: {SEED}={seed} cargo test -p tests --test sim {test}");
        }
    }
}
