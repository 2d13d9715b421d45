//! The contenders' reports about their locks, and the derived figures.

/// One lock, in microseconds of the clock that all processes share.
#[derive(Clone, Copy)]
pub struct Hold {
    /// Which contender it was.
    pub contender: usize,
    pub asked: u64,
    pub granted: u64,
    /// When the release was called.
    pub released: u64,
}

impl Hold {
    /// Reads what [`Display`](std::fmt::Display) has written.
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let contender = fields.next()?.parse().ok()?;
        let mut next = || fields.next()?.parse().ok();
        Some(Self { contender, asked: next()?, granted: next()?, released: next()? })
    }
}

impl std::fmt::Display for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { contender, asked, granted, released } = self;
        write!(f, "{contender} {asked} {granted} {released}")
    }
}

/// The figures of a round, in this order.
pub const NAMES: [&str; FIGURES] = [
    "locks a second",
    "smallest share",
    "share of the second half",
    "hand-over p50 (us)",
    "hand-over p99 (us)",
    "wait p50 (ms)",
    "wait p99 (ms)",
    "in order: wait p99 (ms)",
    "overtaken by (p99)",
    "masters' CPU (us a lock)",
];
const FIGURES: usize = 10;
/// The name of the requests for each lock.
pub const REQUESTS: &str = "requests a lock";

/// Two requests within this time may be served in either order, because both are on their way.
const AT_ONCE_US: u64 = 5_000;

/// The figures of one round.
pub type Figures = [f64; FIGURES];

/// Returns the figures of one round of `contenders` that ended at `end`, in which the masters used
/// `cpu` seconds of CPU.
pub fn figures(mut holds: Vec<Hold>, contenders: usize, end: u64, cpu: f64) -> Figures {
    let cpu = cpu * 1e6 / holds.len() as f64;
    holds.retain(|hold| hold.released <= end);
    holds.sort_by_key(|hold| hold.granted);
    let began = holds.iter().map(|hold| hold.asked).min().unwrap_or(end);
    let hand_overs = holds.windows(2).map(|pair| pair[1].granted.saturating_sub(pair[0].released));
    let mut hand_overs: Vec<u64> = hand_overs.collect();
    let mut waits: Vec<u64> = holds.iter().map(|hold| hold.granted - hold.asked).collect();
    [
        holds.len() as f64 / (end.saturating_sub(began) as f64 / 1e6),
        smallest_share(&holds, contenders),
        holds.iter().filter(|hold| hold.contender >= contenders / 2).count() as f64
            / holds.len() as f64,
        quantile(&mut hand_overs, 0.5),
        quantile(&mut hand_overs, 0.99),
        quantile(&mut waits, 0.5) / 1e3,
        quantile(&mut waits, 0.99) / 1e3,
        quantile(&mut waits_in_order(&holds), 0.99) / 1e3,
        quantile(&mut overtaken(&holds, contenders), 0.99),
        cpu,
    ]
}

/// Returns how long each lock would have taken if all were served in order of request: the median
/// time per lock, for each contender that held or waited at the time of the request.
fn waits_in_order(holds: &[Hold]) -> Vec<u64> {
    let mut turns: Vec<u64> =
        holds.windows(2).map(|pair| pair[1].granted.saturating_sub(pair[0].granted)).collect();
    let turn = quantile(&mut turns, 0.5) as u64;
    let served = |at: u64| holds.partition_point(|hold| hold.granted <= at) as u64;
    let mut asked: Vec<u64> = holds.iter().map(|hold| hold.asked).collect();
    asked.sort_unstable();
    let before = |at: u64| asked.partition_point(|asked| *asked < at) as u64;
    let wait = |hold: &Hold| (before(hold.asked) + 1).saturating_sub(served(hold.asked)) * turn;
    holds.iter().map(wait).collect()
}

/// Returns how many locks with clearly later requests were acquired before each lock.
fn overtaken(holds: &[Hold], contenders: usize) -> Vec<u64> {
    let overtook = |place: usize, hold: &Hold| {
        let before = holds[..place].iter().rev().take_while(|it| it.granted > hold.asked);
        before.filter(|it| it.asked > hold.asked + AT_ONCE_US).count() as u64
    };
    // If tasks of one process pass a lease on, the order differs.
    match contenders <= 64 {
        true => holds.iter().enumerate().map(|(place, hold)| overtook(place, hold)).collect(),
        false => Vec::new(),
    }
}

/// The locks of the contender that got fewest, as a part of the mean.
fn smallest_share(holds: &[Hold], contenders: usize) -> f64 {
    let mut shares = vec![0_usize; contenders];
    for hold in holds {
        shares[hold.contender] += 1;
    }
    let least = shares.iter().min().copied().unwrap_or(0);
    (least * contenders) as f64 / holds.len() as f64
}

fn quantile(values: &mut [u64], at: f64) -> f64 {
    values.sort_unstable();
    let index = (values.len() as f64 * at) as usize;
    let found = values.get(index.min(values.len().saturating_sub(1)));
    found.map_or(f64::NAN, |value| *value as f64)
}
