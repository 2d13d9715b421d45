//! The traffic of seeds: what masters carried out, to compare two revisions of the client.
//! `scripts/traffic.sh` writes it to a file, or compares it with one.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::Write;

use redlock_quorum::Quarantine;
use redlock_testkit::{Executed, SimNodes};

use super::contenders::Campaign;
use super::mutual_exclusion::{FIVE, THREE, nemesis};
use crate::seeds::simulate;

/// The file to write, or to compare with if it exists.
const FILE: &str = "REDLOCK_TRAFFIC";

/// A digest of everything that the masters carried out: when, which request, for which key, under
/// which token, with which verdict. Tokens are random, so each is replaced by its place in the
/// order of arrival at its master.
pub(super) fn digest(masters: &SimNodes) -> u64 {
    let mut text = String::new();
    for (number, master) in masters.iter().enumerate() {
        let mut tokens = HashMap::new();
        for request in master.log() {
            let next = tokens.len();
            let token = *tokens.entry(request.token.clone()).or_insert(next);
            line(&mut text, number, token, &request);
        }
    }
    fnv(text.as_bytes())
}

fn line(text: &mut String, master: usize, token: usize, request: &Executed) {
    let Executed { at, verb, key, verdict, .. } = request;
    // A verdict about another holder has its token, which is random.
    let verdict = format!("{verdict:?}");
    let verdict = verdict.split(|letter: char| !letter.is_alphanumeric()).next().unwrap();
    let (at, key) = (at.as_nanos(), String::from_utf8_lossy(key));
    writeln!(text, "{master} {at} {verb:?} {key} {token} {verdict}").unwrap();
}

/// FNV-1a, which is the same in every version of Rust.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The traffic of one seed. Seeds take turns: five masters, callers that share a process, masters
/// with a quarantine.
fn of(seed: u64) -> u64 {
    let campaign = match seed % 3 {
        0 => FIVE,
        1 => THREE,
        _ => Campaign { quarantine: Quarantine::On, ..THREE },
    };
    simulate(campaign.run(seed, &nemesis(seed, campaign.masters))).unwrap().traffic
}

#[test]
fn traffic_is_the_same_for_the_same_seed() {
    let seeds = 0..if std::env::var_os(FILE).is_some() { 200 } else { 6 };
    let digests: Vec<String> = seeds.map(|seed| format!("{seed} {:016x}", of(seed))).collect();
    for (seed, digest) in (0..3).zip(&digests) {
        assert_eq!(*digest, format!("{seed} {:016x}", of(seed)));
    }
    let different: HashSet<&str> =
        digests.iter().map(|one| one.split_once(' ').unwrap().1).collect();
    assert_eq!(different.len(), digests.len(), "seeds with the same traffic: {digests:?}");
    if let Some(file) = std::env::var_os(FILE) {
        compare(&file, &digests);
    }
}

fn compare(file: &OsStr, digests: &[String]) {
    let Ok(before) = std::fs::read_to_string(file) else {
        return std::fs::write(file, digests.join("\n") + "\n").unwrap();
    };
    let before: Vec<&str> = before.lines().collect();
    assert_eq!(before.len(), digests.len(), "another number of seeds");
    let changed: Vec<_> =
        digests.iter().zip(before).filter(|(now, before)| now != before).collect();
    assert!(changed.is_empty(), "{} seeds have other traffic: {changed:?}", changed.len());
}
