//! The state of the model.

use crate::admission::{Nonce, Score};
use crate::broken::Broken;
use crate::client::Client;
use crate::part::Part;
use crate::server::Server;
use crate::wire::Request;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) servers: Vec<Server>,
    pub(crate) clients: Vec<Client>,
    /// Scripts of connections that are gone, by master: each may still be carried out.
    pub(crate) strays: Vec<(usize, Request)>,
    /// The orders of a person's `init` that are on the way.
    pub(crate) orders: Vec<(usize, Request)>,
    /// The number of the next nonce.
    pub(crate) fresh: u64,
    /// The machine whose clock is stepped.
    pub(crate) stepped: Option<usize>,
    pub(crate) attempt: Option<Attempt>,
    /// What a script did that it must never do.
    pub(crate) wrong: Option<Wrong>,
    pub(crate) left: Left,
}

/// What may still happen.
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
}

/// A ballot under way: who has accepted it, in which life, and until when that counts.
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
}

impl World {
    pub(crate) fn new(part: &Part) -> Self {
        let nonce = (part.broken != Some(Broken::NonceForgotten)).then_some(Nonce(1));
        let servers = (0..part.masters).map(|index| Server::new(index, part.fresh, nonce));
        let clients = (0..part.clients).map(|index| Client::new(part, index == 0));
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

    /// Removes what can make no difference any more, so that fewer states are told apart.
    pub(crate) fn tidy(&mut self) {
        let now = self.now;
        for server in &mut self.servers {
            if server.owed_until <= now {
                server.owed_until = 0;
            }
            server.key = server.key.filter(|(_, until)| *until > now);
        }
        self.strays.sort_by_key(|stray| format!("{stray:?}"));
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
        }
    }
}
