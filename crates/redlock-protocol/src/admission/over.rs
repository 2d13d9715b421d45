//! Is a quarantine over? Two ways, so that no single machine's clock ends one early.
//!
//! *Known*: this client has known the nonce for the whole length by its own clock, and by its own
//! TIME the master's quarantine has ended. The nonce was made after the loss, so a lock of the
//! former incarnation has ended, whatever the clocks of the masters do. This needs a long-running
//! client.
//!
//! *Noted*: the TIME of another master was written into the record after the nonce was made, and by
//! the TIME of that process twice the length has passed since; and by the TIME of the master in
//! quarantine its end passed one length ago. If one of the two clocks is wrong, the other one
//! prevents an early end. This needs only short-lived clients, now and then.

use redlock_core::admission::{Millis, RunId, Way};

use super::peer::Peer;
use super::view::MasterTime;

/// The way in which the quarantine is over at `now`. `votes` returns whether a master votes.
///
/// `length` is the longest that this client has read. The record of this master may hold a shorter
/// one.
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

/// When this client will know that the quarantine is over, by our own clock.
///
/// `None` while there is none, or while none of its nonce has arrived.
pub(super) fn over_at(peer: &Peer, length: Millis, now: Millis) -> Option<Millis> {
    let quarantine = peer.quarantine()?;
    let by_master = now + quarantine.until.saturating_sub(peer.time(now));
    Some(length_ends_at(peer, length)?.max(by_master))
}

/// When the clocks of others will show that it is over, to any client that asks them then. A
/// process whose note is missing or counts for nothing is noted by the client that comes next.
///
/// `times` are the processes that vote, each with its TIME or a little less, so that what follows
/// is not too early. They need not have been asked for a note. `None` if no such process votes:
/// then only a long-running client ends the quarantine.
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
