//! Which master is the meeting point of a key.

/// How much the process `run_id` is preferred for `key`, the same in every contender.
pub fn weight(run_id: &str, key: &[u8]) -> u64 {
    // FNV-1a, stirred once more because only the largest of a few is looked at.
    let bytes = key.iter().chain(run_id.as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
