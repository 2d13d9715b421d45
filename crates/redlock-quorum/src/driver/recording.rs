//! `Tap`: tests see what a shell tells its client, and what follows.

use std::fmt;
use std::sync::OnceLock;

use redlock_protocol::client::Client;
use redlock_protocol::client::effects::Effects;
use redlock_protocol::client::input::Input;
use redlock_protocol::client::moment::Moment;
use redlock_protocol::client::terms::Terms;

/// Handles the inputs of one client in place of the shell, which calls
/// [`Client::handle`](Client::handle) itself otherwise.
pub trait Tap: Send {
    /// Handles one input.
    fn handle(
        &mut self,
        client: &mut Client,
        input: Input<'_>,
        moment: &mut dyn Moment,
        effects: &mut Effects,
    );
}

/// Makes the tap of the client with these settings.
pub type Make = fn(&Terms) -> Box<dyn Tap>;

static TAPS: OnceLock<Make> = OnceLock::new();

/// Taps every client that this process creates from now on. Later calls have no effect.
pub fn tap_all(make: Make) {
    TAPS.get_or_init(|| make);
}

/// The tap of one client, if there is one.
pub(super) struct Tapped(Option<Box<dyn Tap>>);

impl Tapped {
    pub(super) fn new(terms: &Terms) -> Self {
        Self(TAPS.get().map(|make| make(terms)))
    }

    pub(super) fn handle(
        &mut self,
        client: &mut Client,
        input: Input<'_>,
        moment: &mut dyn Moment,
        effects: &mut Effects,
    ) {
        match &mut self.0 {
            Some(tap) => tap.handle(client, input, moment, effects),
            None => client.handle(input, moment, effects),
        }
    }
}

impl fmt::Debug for Tapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tapped").field(&self.0.is_some()).finish()
    }
}
