//! The two pure questions by themselves: is the vote decided, and until when do we hold?

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use redlock_core::{Instant, Verdict};
use redlock_protocol::votes::{tally, validity};

fn tally(criterion: &mut Criterion) {
    for masters in [1, 3, 5, 7, 15] {
        criterion.bench_function(&format!("pure/tally/{masters}"), |bencher| {
            bencher.iter(|| {
                let mut tally = tally::Tally::new(black_box(masters));
                while tally.decision() == tally::Decision::Open {
                    tally.count(black_box(&Verdict::Granted));
                }
                tally
            });
        });
    }
}

fn validity(criterion: &mut Criterion) {
    for masters in [1, 3, 5, 7, 15] {
        criterion.bench_function(&format!("pure/validity/{masters}"), |bencher| {
            bencher.iter(|| {
                let mut holds = validity::HoldUntil::new(black_box(masters));
                for master in 0..masters {
                    let sent_at = Instant::from_nanos(black_box(master as u64));
                    holds.confirm(master, sent_at, Duration::from_secs(10));
                }
                holds.valid_until()
            });
        });
    }
}

criterion_group!(pure, tally, validity);
criterion_main!(pure);
