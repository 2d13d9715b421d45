//! The meeting point of a key: the choice of one master. See rule W2 of `docs/PROTOCOL.md`.

/// The part of the weight [of a key](Self::of_key) that the process of a master contributes. It is
/// computed once per process instead of once per key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Weight(u64);

impl Weight {
    /// Computes the contribution of the process `run_id`.
    pub fn of(run_id: &str) -> Self {
        Self(fold(0xcbf2_9ce4_8422_2325, run_id.as_bytes()))
    }

    /// Returns how strongly the process is preferred for `key`. All contenders compute the same
    /// value.
    pub fn of_key(self, key: &[u8]) -> u64 {
        // One more mixing step, because only the largest of a few weights is compared.
        let hash = fold(self.0, key);
        (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// FNV-1a. Clients of all versions must meet at one master, and the hasher of the standard library
/// may change from release to release.
fn fold(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients of all versions must compute these.
    #[test]
    fn the_weights_never_change() {
        let weight = |run_id, key: &str| Weight::of(run_id).of_key(key.as_bytes());
        assert_eq!(weight("", ""), 9_615_434_058_428_004_053);
        assert_eq!(weight("a1", "orders:42"), 11_759_721_880_619_833_558);
    }

    #[test]
    fn keys_are_spread_evenly_over_the_masters() {
        let masters: Vec<_> = (0..5).map(|nth| Weight::of(&format!("{nth:040x}"))).collect();
        for prefix in ["", "orders:", "a longer name that many keys have in common:"] {
            let mut met = [0; 5];
            for nth in 0..10_000 {
                let key = format!("{prefix}{nth}");
                let preferred = |master: &usize| masters[*master].of_key(key.as_bytes());
                let at = (0..5).max_by_key(preferred).unwrap();
                met[at] += 1;
            }
            assert!(met.iter().all(|keys| (1_600..2_400).contains(keys)), "{prefix}: {met:?}");
        }
    }
}
