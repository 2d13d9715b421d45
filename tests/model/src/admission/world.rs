//! The state of the model.

use super::broken::Broken;
use super::client::Client;
use super::part::Part;
use super::server::Server;
use super::wire::Request;
use redlock_core::admission::{Nonce, Note, Score};

use crate::shared::Shared;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) servers: Vec<Shared<Server>>,
    pub(crate) clients: Vec<Shared<Client>>,
    /// Scripts of closed connections, by master. Each may still be executed.
    pub(crate) strays: Vec<(usize, Request)>,
    /// The orders of an operator's `init` that are on their way.
    pub(crate) orders: Vec<(usize, Request)>,
    /// The number of the next nonce.
    pub(crate) fresh: u64,
    /// The machine whose clock is stepped.
    pub(crate) stepped: Option<usize>,
    pub(crate) attempt: Option<Attempt>,
    /// A forbidden effect of a script.
    pub(crate) wrong: Option<Wrong>,
    pub(crate) left: Left,
}

/// The remaining actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) visits: u8,
    pub(crate) losses: u8,
    pub(crate) saves: u8,
    pub(crate) steps: u8,
    pub(crate) flips: u8,
    pub(crate) stops: u8,
    pub(crate) drops: u8,
    pub(crate) inits: u8,
    pub(crate) ballots: u8,
    pub(crate) raises: u8,
}

/// A ballot in progress: who has accepted it, in which process, and until when that is valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub(crate) ballot: Score,
    /// By master: the losses of data before it accepted, and until when it holds the key.
    pub(crate) accepted: Vec<Option<(u8, u64)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wrong {
    /// The end of a quarantine was moved although nothing was lost and its clock was right.
    EndMoved,
    /// An admitted master was put into quarantine although nothing was lost.
    Unseated,
    /// The set of masters was removed from a record.
    SetRemoved,
}

impl World {
    pub(crate) fn new(part: &Part) -> Self {
        let nonce = (part.broken != Some(Broken::NonceForgotten)).then_some(Nonce(1));
        let servers = (0..part.masters).map(|index| Server::new(part, index, nonce).into());
        let clients = (0..part.clients).map(|index| Client::new(part, index == 0).into());
        let mut world = Self {
            now: 0,
            servers: servers.collect(),
            clients: clients.collect(),
            strays: Vec::new(),
            orders: Vec::new(),
            fresh: 2,
            stepped: None,
            attempt: None,
            wrong: None,
            left: Left::new(part),
        };
        if part.late {
            let times = (1..part.masters).map(|other| &world.servers[other]);
            let times = times.map(|server| (server.identity.run, server.time(0))).collect();
            world.strays.push((0, Request::Note(Note { nonce: Nonce(0), times, until: u64::MAX })));
        }
        world.connect_all(part, 0);
        world
    }

    pub(crate) fn connect_all(&mut self, part: &Part, client: usize) {
        for master in 0..part.masters {
            if self.servers[master].up {
                self.connect(part, client, master);
            }
        }
        self.pump(part, client);
    }

    /// Removes data that no longer has an effect, so that fewer states differ.
    pub(crate) fn tidy(&mut self) {
        let now = self.now;
        for server in &mut self.servers {
            if (1..=now).contains(&server.owed_until) {
                server.owed_until = 0;
            }
            if server.key.is_some_and(|(_, until)| until <= now) {
                server.key = None;
            }
        }
        if self.strays.len() > 1 {
            self.strays.sort_by_cached_key(|stray| format!("{stray:?}"));
        }
        if let Some(attempt) = &mut self.attempt
            && attempt.accepted.iter().flatten().any(|(_, until)| *until <= now)
        {
            self.attempt = None;
        }
    }
}

impl Left {
    fn new(part: &Part) -> Self {
        Self {
            visits: part.visits,
            losses: part.losses,
            saves: part.saves,
            steps: part.steps,
            flips: part.flips,
            stops: part.stops,
            drops: part.drops,
            inits: part.inits,
            ballots: part.ballots,
            raises: part.raises,
        }
    }
}
