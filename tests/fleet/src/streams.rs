//! `Stream`: random numbers. Each purpose has its own stream, so that a fault that is left out
//! shifts no other choice.

use std::time::Duration;

/// The purpose of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of {
    Setup,
    Plan,
    /// The fault with this number.
    Fault(usize),
    /// The caller with this number.
    Caller(usize),
    /// The tokens of the client with this number.
    Tokens(usize),
    Nonces(usize),
    /// The seed of the client with this number, of a master, and of a connection.
    Client(usize),
    Master(usize),
    Link(usize),
    Flaw(usize),
}

/// A stream of random numbers: SplitMix64.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(seed: u64, of: Of) -> Self {
        let (kind, number) = match of {
            Of::Setup => (0, 0),
            Of::Plan => (1, 0),
            Of::Fault(number) => (2, number),
            Of::Caller(number) => (3, number),
            Of::Tokens(number) => (4, number),
            Of::Nonces(number) => (5, number),
            Of::Client(number) => (6, number),
            Of::Master(number) => (7, number),
            Of::Link(number) => (8, number),
            Of::Flaw(number) => (9, number),
        };
        Self(mix(mix(mix(seed) ^ kind) ^ number as u64))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    pub(crate) fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    /// Returns `true` in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A duration from `least` to `most` milliseconds.
    pub(crate) fn millis(&mut self, least: u64, most: u64) -> Duration {
        let (least, most) = (least * 1_000, most * 1_000);
        Duration::from_micros(least + self.below(most - least + 1))
    }
}

fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_different_purposes_differ() {
        let first = |of| Stream::new(1, of).number();
        let all = [Of::Setup, Of::Plan, Of::Fault(0), Of::Fault(1), Of::Caller(1), Of::Tokens(1)];
        let mut drawn: Vec<_> = all.into_iter().map(first).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), all.len());
    }
}
