//! Ports that two servers never share.

use std::net::{Ipv4Addr, UdpSocket};
use std::ops::Range;

/// A TCP port that no other server of any process gets while this value exists.
///
/// Finding a free port and then starting a server on it is a race, and the port of a stopped server
/// is free as well. So the kit binds a UDP socket to the same number as each port that it chooses
/// at random. UDP has its own numbers, so the socket never conflicts with the server, the kernel
/// gives it to only one process, and it is closed with that process.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    mark: Option<UdpSocket>,
}

impl Port {
    /// Chooses a random port that no other server of the kit has. Another program may still use it.
    pub(super) fn random() -> Option<Self> {
        let port = Self::fixed(rand::random_range(RANDOM_PORTS));
        port.mark.is_some().then_some(port)
    }

    /// Returns this port, and marks it unless another process has.
    pub(super) fn fixed(number: u16) -> Self {
        Self { number, mark: UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok() }
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }
}

// Below the ports that Linux gives to outgoing connections (from 32768), which come and go.
const RANDOM_PORTS: Range<u16> = 20_000..32_000;

#[cfg(test)]
mod tests {
    use super::Port;

    #[test]
    fn port_is_marked_by_one_owner_at_a_time() {
        let port = Port::random().unwrap();
        let number = port.number();
        assert!(Port::fixed(number).mark.is_none());
        drop(port);
        assert!(Port::fixed(number).mark.is_some());
    }
}
