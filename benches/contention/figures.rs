//! What contenders say of their locks, and the figures that come of it.

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

/// What a round has counted, in this order.
pub const NAMES: [&str; FIGURES] = [
    "locks a second",
    "smallest share",
    "requests a lock",
    "asked first a lock",
    "asked all a lock",
    "hand-over p50 (us)",
    "hand-over p99 (us)",
    "wait p50 (ms)",
    "wait p99 (ms)",
];
const FIGURES: usize = 9;

/// The figures of one round.
pub type Figures = [f64; FIGURES];

/// What the masters were asked, by all contenders of a round.
#[derive(Clone, Copy)]
pub struct Asked {
    /// Requests of clients. The scripts of a queue set keys, too, and enter sorted sets: those calls
    /// are counted beside their scripts, about ten a lock.
    pub requests: u64,
    /// SETs at the master that got most of them. An attempt that asks one master first asks it.
    pub most: u64,
    /// SETs at the master that got fewest of them: attempts that asked all masters.
    pub fewest: u64,
}

/// The figures of one round of `contenders` that was over at `end`. What a master was asked that
/// died is not known.
pub fn figures(mut holds: Vec<Hold>, contenders: usize, end: u64, asked: Option<Asked>) -> Figures {
    let all = holds.len() as f64;
    holds.retain(|hold| hold.released <= end);
    holds.sort_by_key(|hold| hold.granted);
    let began = holds.iter().map(|hold| hold.asked).min().unwrap_or(end);
    let hand_overs = holds.windows(2).map(|pair| pair[1].granted.saturating_sub(pair[0].released));
    let mut hand_overs: Vec<u64> = hand_overs.collect();
    let mut waits: Vec<u64> = holds.iter().map(|hold| hold.granted - hold.asked).collect();
    let a_lock =
        |count: fn(Asked) -> u64| asked.map_or(f64::NAN, |asked| count(asked) as f64 / all);
    [
        holds.len() as f64 / (end.saturating_sub(began) as f64 / 1e6),
        smallest_share(&holds, contenders),
        a_lock(|asked| asked.requests),
        a_lock(|asked| asked.most),
        a_lock(|asked| asked.fewest),
        quantile(&mut hand_overs, 0.5),
        quantile(&mut hand_overs, 0.99),
        quantile(&mut waits, 0.5) / 1e3,
        quantile(&mut waits, 0.99) / 1e3,
    ]
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
