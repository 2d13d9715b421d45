//! Does every master that stays up vote again, once there are no more faults?
//!
//! A state is checked in two ways: with one client that stays connected, and with clients that
//! connect only briefly. Messages on their way are lost, and no clock is stepped any longer.

use super::client::Client;
use super::part::{Part, TTL};
use super::wire::Link;
use super::world::World;

/// The maximum number of quarantine lengths. A quarantine may end just as a clock turns out to be
/// wrong, and start again, and a note may have to be withdrawn.
const LENGTHS: u64 = 6;

impl World {
    pub(crate) fn recovers(&self, part: &Part) -> bool {
        self.calm(part).stays(part) && self.calm(part).visited(part)
    }

    /// The same masters, one client that was just started.
    fn calm(&self, part: &Part) -> Self {
        let mut world = self.clone();
        world.strays.clear();
        world.orders.clear();
        world.attempt = None;
        world.clients.truncate(1);
        world.clients[0] = Client::new(part, true).into();
        world
    }

    fn stays(mut self, part: &Part) -> bool {
        let mut part = *part;
        (part.probe_every, part.clients) = (1, 1);
        self.clients[0] = Client::new(&part, true).into();
        self.connect_all(&part, 0);
        for _ in 0..LENGTHS * TTL {
            self.settle(&part);
            if self.all_admitted() {
                return true;
            }
            self.now += 1;
            self.pump(&part, 0);
        }
        false
    }

    /// Needs a master that votes: without one, or with N = 1, a client must stay.
    fn visited(mut self, part: &Part) -> bool {
        let mut part = *part;
        part.clients = 1;
        if !self.servers.iter().any(|server| server.up && server.is_admitted()) {
            return true;
        }
        for _ in 0..LENGTHS {
            self.clients[0] = Client::new(&part, true).into();
            self.connect_all(&part, 0);
            self.settle(&part);
            if self.all_admitted() {
                return true;
            }
            self.clients[0].links = vec![Link::down(); part.masters];
            self.now += TTL;
        }
        false
    }

    /// Every message arrives immediately.
    fn settle(&mut self, part: &Part) {
        for _ in 0..20 * part.masters {
            let links = &self.clients[0].links;
            let due = (0..part.masters).find(|&master| links[master].wire.is_some());
            let Some(master) = due else { return };
            self.take(part, super::action::Action::Arrive(0, master));
        }
    }

    fn all_admitted(&self) -> bool {
        self.servers.iter().all(|server| !server.up || server.is_admitted())
    }
}
