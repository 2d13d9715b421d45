//! `Reservation`: the value of a key that is kept for the next ticket of its queue. See rule D4 of
//! `docs/PROTOCOL.md`.

use std::fmt;
use std::str::FromStr;

use crate::numbers::sixteen_digits;

/// The number of a handle in shared queues: 16 hex digits, drawn once. It is not a token, and
/// grants no rights.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueTicket(u64);

impl QueueTicket {
    /// The number of digits on the wire.
    pub const DIGITS: usize = 16;

    /// Creates the ticket with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Creates a unique ticket from 64 random bits.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// Returns the ticket's hex digits.
    pub fn digits(self) -> [u8; Self::DIGITS] {
        let nibble = |at: usize| (self.0 >> (4 * (Self::DIGITS - 1 - at)) & 0xf) as usize;
        std::array::from_fn(|at| b"0123456789abcdef"[nibble(at)])
    }
}

impl fmt::Display for QueueTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for QueueTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueTicket({self})")
    }
}

/// The reason why a text is not a [`QueueTicket`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a ticket of a queue is 16 digits 0-9 a-f")]
pub struct InvalidQueueTicket;

impl FromStr for QueueTicket {
    type Err = InvalidQueueTicket;

    fn from_str(text: &str) -> Result<Self, InvalidQueueTicket> {
        sixteen_digits(text).map(Self).ok_or(InvalidQueueTicket)
    }
}

/// The value of a key that no client holds, and that is kept for the next client in the queue.
///
/// A client that counts grants treats it as the key of another holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    /// The called ticket. `None` at the masters that keep no queue for the key.
    pub ticket: Option<QueueTicket>,
}

impl Reservation {
    /// The beginning of every reservation, and of no [`Token`](crate::Token). Other clients know
    /// it, so it never changes.
    pub const PREFIX: &'static str = "redlock-quorum:next:";

    /// Returns `true` if a value is in the form of a reservation, which no token may have.
    pub fn is_one(value: &[u8]) -> bool {
        value.starts_with(Self::PREFIX.as_bytes())
    }

    /// Parses the value of a key. `None` if it is not a reservation. A reservation with an unknown
    /// form of ticket is still a reservation.
    pub fn parse(value: &str) -> Option<Self> {
        let ticket = value.strip_prefix(Self::PREFIX)?;
        Some(Self { ticket: ticket.parse().ok() })
    }
}

/// The value of the key.
impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::PREFIX)?;
        self.ticket.map_or(Ok(()), |ticket| ticket.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;

    #[test]
    fn a_ticket_is_sixteen_hex_digits() {
        let ticket = QueueTicket::new(0xff);
        assert_eq!(ticket.to_string(), "00000000000000ff");
        for number in [0, 0xff, 0x0123_4567_89ab_cdef, u64::MAX] {
            let ticket = QueueTicket::new(number);
            assert_eq!(ticket.digits(), *ticket.to_string().as_bytes());
        }
        assert_eq!("00000000000000ff".parse(), Ok(ticket));
        for bad in ["", "ff", "00000000000000FF", "+0000000000000ff", "00000000000000ff0"] {
            assert_eq!(bad.parse::<QueueTicket>(), Err(InvalidQueueTicket), "{bad:?}");
        }
    }

    #[test]
    fn reservation_survives_a_round_trip_and_is_not_a_token() {
        for ticket in [None, Some(QueueTicket::new(7))] {
            let reservation = Reservation { ticket };
            let value = reservation.to_string();
            assert_eq!(Reservation::parse(&value), Some(reservation));
            assert!(Reservation::is_one(value.as_bytes()));
            assert!(Token::parse(&value).is_err(), "{value}");
        }
        assert_eq!(
            Reservation::parse("redlock-quorum:next:of a later version"),
            Some(Reservation { ticket: None })
        );
        assert_eq!(Reservation::parse("redlock-quorum:nex"), None);
    }
}
