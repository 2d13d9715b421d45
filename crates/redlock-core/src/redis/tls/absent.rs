//! A build without TLS. It rejects every address that needs encryption.

use std::io;

use tokio::net::TcpStream;

use super::super::stream::Stream;
use super::{InvalidTls, Tls};
use crate::Cause;

const ABSENT: &str = "this program was built without it: build it with the feature `tls`";

/// There is none.
#[derive(Clone)]
pub(in crate::redis) enum Connector {}

impl Tls {
    pub(in crate::redis) fn connector(&self) -> Result<Connector, InvalidTls> {
        let is_of_ca = self.ca.is_some() || self.identity.is_none();
        Err(if is_of_ca { InvalidTls::of_ca(ABSENT) } else { InvalidTls::of_identity(ABSENT) })
    }
}

pub(in crate::redis) async fn encrypted(
    connector: &Connector,
    _: &str,
    _: TcpStream,
) -> Result<Box<dyn Stream>, Cause> {
    match *connector {}
}

/// No error comes from TLS.
pub(in crate::redis) fn cause(_: &io::Error) -> Option<Cause> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_need_tls_are_refused_with_the_cause() {
        for tls in [Tls::new(), Tls::new().ca("PEM"), Tls::new().identity("CERT", "KEY")] {
            let refused = tls.connector().err().unwrap();
            assert!(refused.to_string().contains("the feature `tls`"), "{refused}");
        }
    }
}
