//! The parts of the model and their bounds.

use super::broken::Broken;

/// What one run bounds. Counts are for the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// What it is called in the output.
    pub name: &'static str,
    /// How many masters there are.
    pub masters: usize,
    /// How many attempts each contender may make.
    pub attempts: &'static [u8],
    /// How many ticks a key lives; a holder may count on less than that, and on at least one tick.
    pub ttl: u8,
    /// When time ends.
    pub horizon: u8,
    /// Whether grants are read late, too: in a later tick than that in which they are made.
    pub late: bool,
    /// Whether locks are released; otherwise each is left to its expiry.
    pub releases: bool,
    /// How many extensions there are.
    pub extensions: u8,
    /// How many connections break.
    pub breaks: u8,
    /// How many attempts are given up before they are decided: by the node timeout, or because the
    /// handle is shut down.
    pub cancels: u8,
    /// How often a clock gains or loses a tick. A master gains, a contender loses.
    pub slips: u8,
    /// How many slips any two clocks may be apart, as far as the assumption goes.
    pub drift: u8,
    /// The rule that is broken.
    pub broken: Option<Broken>,
}

/// Two contenders with one attempt each, and nothing goes wrong but that messages are late.
const TWO: Part = Part {
    name: "",
    masters: 3,
    attempts: &[1, 1],
    ttl: 2,
    horizon: 0,
    late: false,
    releases: false,
    extensions: 0,
    breaks: 0,
    cancels: 0,
    slips: 0,
    drift: 1,
    broken: None,
};

/// The bounds that the ordinary tests exhaust in seconds.
pub fn small() -> Vec<Part> {
    vec![
        Part { name: "late", late: true, horizon: 2, ..TWO },
        Part { name: "released", releases: true, ..TWO },
        Part { name: "drift", ttl: 5, horizon: 4, slips: 1, ..TWO },
        Part { name: "extend", extensions: 1, horizon: 2, ..TWO },
    ]
}

/// The bounds of `make model`.
pub fn large() -> Vec<Part> {
    let again = Part { attempts: &[2, 1], releases: true, ..TWO };
    vec![
        Part { name: "late", late: true, horizon: 3, ..TWO },
        Part { name: "late-released", late: true, releases: true, horizon: 1, ..TWO },
        Part { name: "released", releases: true, horizon: 2, ..TWO },
        Part { name: "break", breaks: 1, releases: true, horizon: 1, ..TWO },
        Part { name: "again", breaks: 1, cancels: 1, ..again },
        Part { name: "cancel", cancels: 1, releases: true, horizon: 1, ..TWO },
        Part { name: "drift", ttl: 5, horizon: 5, slips: 3, ..TWO },
        Part { name: "extend", extensions: 1, horizon: 3, ..TWO },
        Part { name: "extend-late", late: true, extensions: 1, horizon: 3, ..TWO },
    ]
}

/// The part in which a mutant is looked for.
pub fn named(broken: Broken) -> Part {
    use Broken as B;
    let again = Part { attempts: &[2, 1], releases: true, cancels: 1, ..TWO };
    let part = match broken {
        B::Drift => Part { ttl: 5, horizon: 4, slips: 2, drift: 2, ..TWO },
        B::FromReply => Part { late: true, horizon: 3, ..TWO },
        B::MajorityOfReachable => TWO,
        B::ReleaseWithoutCompare => again,
        B::OneValue => Part { breaks: 1, ..again },
        B::SentTwice => Part { attempts: &[1], releases: true, late: true, breaks: 1, ..TWO },
    };
    Part { name: "mutant", broken: Some(broken), ..part }
}
