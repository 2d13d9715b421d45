//! Does every master that stays up come back, once nothing more goes wrong?
//!
//! Asked of a state, in two ways: one client stays, or clients live a moment each. What is on the
//! way is lost, and no clock is stepped any more.

use super::client::Client;
use super::part::{Part, TTL};
use super::wire::Link;
use super::world::World;

/// How many lengths of a quarantine it may take. One may end just as a clock turns out to be
/// wrong, and begins anew; a note may have to be taken back.
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

    /// Everything that is sent arrives at once.
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
