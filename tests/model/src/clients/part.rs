//! The parts of the model and their bounds.

use super::broken::Broken;

/// The bounds of one run. Numbers apply to the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its name in the output.
    pub name: &'static str,
    /// How many masters there are.
    pub masters: usize,
    /// How many callers of each process ask for the key.
    pub asks: &'static [usize],
    /// How many of them wait or hold at a time.
    pub at_once: usize,
    /// How often alarms are fired.
    pub ticks: u8,
    /// How many of these times are while messages are on their way.
    pub late: u8,
    /// How many callers give up.
    pub cancels: u8,
    /// How many connections break.
    pub breaks: u8,
    /// How many processes stop for good.
    pub stops: u8,
    /// How many processes are shut down.
    pub closes: u8,
    /// Whether a lock passes to the next caller of its process.
    pub hand_over: bool,
    /// How long a caller waits, in milliseconds. `None` for no limit.
    pub wait: Option<u64>,
    /// The TTL in milliseconds.
    pub ttl: u64,
    /// How long the key may be idle at most, once there are no more faults, in milliseconds.
    pub idle: u64,
    /// Whether calls and pushes may be read late.
    pub late_calls: bool,
    /// Whether a process that waits in the queue is passed only a limited number of times.
    pub is_fair: bool,
    /// The broken rule.
    pub broken: Option<Broken>,
}

/// Two processes and one master, and nothing fails.
const NONE: Part = Part {
    name: "",
    masters: 1,
    asks: &[2, 1],
    at_once: 2,
    ticks: 1,
    late: 0,
    cancels: 0,
    breaks: 0,
    stops: 0,
    closes: 0,
    hand_over: false,
    wait: None,
    ttl: 10_000,
    idle: 60,
    late_calls: false,
    is_fair: true,
    broken: None,
};

/// Returns the bounds that the ordinary tests exhaust in seconds.
pub fn small() -> Vec<Part> {
    vec![
        Part { name: "two", ticks: 0, ..NONE },
        Part { name: "cancel", asks: &[1, 1], cancels: 1, ..NONE },
        Part { name: "close", asks: &[1, 1], closes: 1, ..expiring(NONE) },
    ]
}

/// Returns the bounds of `make model`.
pub fn large() -> Vec<Part> {
    let late = Part { late_calls: true, ..NONE };
    let three = Part { masters: 3, asks: &[1, 1], at_once: 1, ..NONE };
    vec![
        Part { name: "two", asks: &[2, 2], ..NONE },
        Part { name: "again", asks: &[4, 1], at_once: 1, ..NONE },
        Part { name: "hand-over", asks: &[3, 1], cancels: 1, hand_over: true, ..NONE },
        Part { name: "cancel", cancels: 2, ..NONE },
        Part { name: "late-calls", ticks: 2, ..late },
        Part { name: "late", ticks: 2, late: 1, ..expiring(late) },
        Part { name: "wait", wait: Some(120), ticks: 4, ..NONE },
        Part { name: "break", breaks: 1, ticks: 2, ..expiring(NONE) },
        Part { name: "stop", asks: &[1, 1, 1], stops: 1, ticks: 0, ..expiring(NONE) },
        Part { name: "close", closes: 1, ticks: 2, ..expiring(NONE) },
        Part { name: "three-masters", ticks: 0, ..three },
    ]
}

/// A key may be left to expire: that of a holder that is shut down or stops, or of a lost reply.
fn expiring(part: Part) -> Part {
    Part { is_fair: false, ttl: 1_000, idle: 2_500, ..part }
}

/// Returns the bounds in which a mutant is looked for.
pub fn named(broken: Broken) -> Part {
    let one = Part { asks: &[1, 1], ..NONE };
    let part = match broken {
        Broken::PlaceKept | Broken::CallKept | Broken::CancelIgnored | Broken::UntakenKept => {
            Part { asks: &[1, 2], cancels: 1, ..NONE }
        }
        Broken::LastFirst => Part { asks: &[3], at_once: 3, ..NONE },
        Broken::CallsNone => Part { asks: &[5, 1], at_once: 1, ticks: 0, ..NONE },
        Broken::CallsIgnored => Part { asks: &[1, 1, 1], at_once: 1, ..NONE },
        Broken::AlarmsIgnored => Part { ticks: 2, late: 1, ..expiring(one) },
        Broken::ShutdownKeepsPlace => Part { closes: 1, ..expiring(one) },
        Broken::RefusalGrants => one,
    };
    Part { name: "mutant", broken: Some(broken), ..part }
}
