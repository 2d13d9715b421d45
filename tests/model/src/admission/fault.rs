//! The faults.

use super::action::Action;
use redlock_protocol::admission::{Event, Incarnation};
use redlock_testkit::Data;

use super::broken::Broken;
use super::client::Client;
use super::part::{Loss, Part};
use super::server::FLIPPED;
use super::wire::{Link, Request};
use super::world::World;
use crate::shared::Shared;

impl World {
    pub(crate) fn faults(&self, part: &Part, master: usize, actions: &mut Vec<Action>) {
        let server = &self.servers[master];
        if !server.up {
            return;
        }
        if self.left.losses > 0 && master < part.lossy {
            let may = |loss: &&Loss| **loss != Loss::PutBack || self.may_put_back(part, master);
            let kinds = part.kinds.iter().filter(may);
            actions.extend(kinds.map(|&loss| Action::Lose(master, loss)));
        }
        if self.left.saves > 0 && master < part.lossy && server.saved != server.data {
            actions.push(Action::Save(master));
        }
        let clock = self.stepped.or(part.clock);
        if self.left.steps > 0 && clock.is_none_or(|stepped| stepped == master) {
            actions.extend(part.strides.iter().map(|&stride| Action::Step(master, stride)));
        }
        if self.left.flips > 0 && server.true_identity().replid.is_some() && !server.lost {
            actions.push(Action::Flip(master));
        }
        if self.left.stops > 0 && master + 1 == part.masters && master > 0 {
            actions.push(Action::Stop(master));
        }
    }

    /// Returns `true` if clients would notice an old copy: all clients have seen the master's
    /// present data, and this process has had the saved data.
    fn may_put_back(&self, part: &Part, master: usize) -> bool {
        let server = &self.servers[master];
        let present = Incarnation::of(&server.facts(part, self.now));
        let (saved, record) = (&server.saved.record, &server.data.record);
        let is_former = (saved.nonce, saved.run) != (record.nonce, record.run);
        let has_seen = |client: &Shared<Client>| {
            client.alive && client.machine.reachable().contains(&(master, present))
        };
        is_former && saved.nonce.is_some() && self.clients.iter().all(has_seen)
    }

    pub(crate) fn fault(&mut self, part: &Part, fault: Action) {
        match fault {
            Action::Lose(master, loss) => self.lose(part, master, loss),
            Action::Save(master) => {
                self.left.saves -= 1;
                self.servers[master].saved = self.servers[master].data.clone();
            }
            Action::Step(master, stride) => {
                self.left.steps -= 1;
                self.stepped = Some(master);
                self.servers[master].ahead += stride;
            }
            Action::Flip(master) => {
                self.left.flips -= 1;
                let apart = part.broken == Some(Broken::FlipBegins);
                self.servers[master].identity.replid = apart.then_some(FLIPPED);
            }
            Action::Stop(master) => {
                self.left.stops -= 1;
                self.servers[master].up = false;
                self.break_links(part, master);
            }
            _ => unreachable!("only faults come here"),
        }
    }

    fn lose(&mut self, part: &Part, master: usize, loss: Loss) {
        let counted = (0..part.clients).any(|client| self.counts(part, client, master));
        self.left.losses -= 1;
        let server = &mut self.servers[master];
        server.lose(self.now, counted);
        match loss {
            Loss::RestartEmpty | Loss::Flush => server.data = Data::default(),
            Loss::RestartSaved | Loss::RestartReplica | Loss::Failover | Loss::PutBack => {
                server.data = server.saved.clone();
            }
        }
        match loss {
            Loss::RestartEmpty | Loss::RestartSaved => server.identity = server.next_process(),
            Loss::RestartReplica => {
                server.identity = server.next_process();
                server.identity.replid = Some(server.next_history());
            }
            Loss::Failover => server.identity.replid = Some(server.next_history()),
            Loss::Flush | Loss::PutBack => {}
        }
        // The operator's statement does not cover a loss during `init`. An order past its time
        // limit belongs to a finished call.
        let time = self.servers[master].time(self.now);
        let is_over =
            |request: &Request| matches!(request, Request::Init(init) if init.until < time);
        self.orders.retain(|(ordered, request)| *ordered != master || is_over(request));
        match loss {
            Loss::Flush | Loss::Failover | Loss::PutBack => self.push(part, master),
            _ => self.break_links(part, master),
        }
        if loss == Loss::PutBack && part.broken == Some(Broken::OutdatedTaken) {
            (0..part.clients).for_each(|client| self.forget(part, client));
        }
    }

    /// The mutant: a client forgets everything, except what its open connections report again.
    pub(crate) fn forget(&mut self, part: &Part, client: usize) {
        let former = self.clients[client].clone();
        let reached = former.reached.clone();
        self.clients[client] = Client { reached, ..Client::new(part, true) }.into();
        let up = (0..part.masters).filter(|&master| former.links[master].up);
        up.for_each(|master| self.connect(part, client, master));
    }

    /// Sends the null push on each connection that has tracking.
    fn push(&mut self, part: &Part, master: usize) {
        for (index, client) in self.clients.iter_mut().enumerate() {
            let tracks = part.tracking || index == 0;
            if client.links[master].up && tracks && part.broken != Some(Broken::PushIgnored) {
                client.links[master].pushed = true;
            }
        }
    }

    /// The process is gone, and with it all requests that were on their way to it.
    fn break_links(&mut self, part: &Part, master: usize) {
        self.strays.retain(|(ordered, _)| *ordered != master);
        for client in 0..part.clients {
            let own = &mut self.clients[client];
            if own.links[master].up {
                own.links[master] = Link::down();
                own.machine.on(master, Event::Down, self.now);
                self.pump(part, client);
            }
        }
    }
}
