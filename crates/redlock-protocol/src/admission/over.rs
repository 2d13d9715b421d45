//! Decides whether a quarantine is over. There are two ways, so that no single machine's clock ends
//! a quarantine early. See rule A10 of `docs/PROTOCOL.md`.
//!
//! *Known*: this client has known the nonce for the whole length by its own clock, and the
//! quarantine has ended by the master's TIME. The nonce was made after the loss, so a lock of the
//! former incarnation has ended, whatever the masters' clocks do. This requires a long-running
//! client.
//!
//! *Noted*: the TIME of another master was written into the record after the nonce was made, and
//! twice the length has passed since by the TIME of that process. In addition, by the TIME of the
//! master in quarantine, its end passed one length ago. If one of the two clocks is wrong, the
//! other one prevents an early end. This only requires short-lived clients, now and then.

use redlock_core::admission::{Millis, RunId, Way};

use super::peer::Peer;
use super::view::MasterTime;

/// Returns the way in which the quarantine is over at `now`. `votes` returns whether a master
/// votes.
///
/// `length` is the longest that this client has read. The record of this master may contain a
/// shorter one.
pub(super) fn over(
    peer: &Peer,
    length: Millis,
    now: Millis,
    votes: impl Fn(&MasterTime) -> bool,
) -> Option<Way> {
    let quarantine = peer.quarantine()?;
    let time = peer.time(now);
    if now >= length_ends_at(peer, length)? && time >= quarantine.until {
        return Some(Way::Known);
    }
    let gone_by = |other: &MasterTime| {
        let note = quarantine.note(other.process);
        note.is_some_and(|note| other.time >= note + 2 * length)
    };
    let mut times = peer.times.iter().flatten();
    let noted = times.any(|other| gone_by(other) && votes(other));
    (noted && time >= quarantine.until + length).then_some(Way::Noted)
}

/// Returns when this client will know, by our own clock, that the quarantine is over.
///
/// `None` while there is no quarantine, or while its nonce has not arrived.
pub(super) fn over_at(peer: &Peer, length: Millis, now: Millis) -> Option<Millis> {
    let quarantine = peer.quarantine()?;
    let by_master = now + quarantine.until.saturating_sub(peer.time(now));
    Some(length_ends_at(peer, length)?.max(by_master))
}

/// Returns when the clocks of other masters will show to any client that it is over. The next
/// client adds a note for a process whose note is missing or invalid.
///
/// `times` are the voting processes, each with its TIME or slightly less, so that the result is not
/// too early. They need not have been queried for a note. `None` if no such process votes, because
/// in that case only a long-running client ends the quarantine.
pub(super) fn noted_at(
    peer: &Peer,
    length: Millis,
    now: Millis,
    times: impl Iterator<Item = (RunId, Millis)>,
) -> Option<Millis> {
    let quarantine = peer.quarantine()?;
    let left = |(process, time): (RunId, Millis)| {
        let counts = !quarantine.wants(process, time);
        let since = quarantine.note(process).filter(|_| counts).unwrap_or(time);
        (since + 2 * length).saturating_sub(time)
    };
    let by_other = times.map(left).min()?;
    let by_master = (quarantine.until + length).saturating_sub(peer.time(now));
    Some(now + by_other.max(by_master))
}

fn length_ends_at(peer: &Peer, length: Millis) -> Option<Millis> {
    let (_, since) = peer.nonce_since?;
    Some(since + length)
}
