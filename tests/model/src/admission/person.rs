//! An operator who runs `init`, and the mutant that does so without one.

use redlock_core::admission::{AdmissionOp, Names, Nonce, Record, SetId};
use redlock_protocol::admission::{
    Event, Incarnation, InitInputs, InitOptions, Listed, MasterView, Scored,
};
use redlock_testkit::Data;

use super::broken::Broken;
use super::client::Client;
use super::part::{Part, TTL};
use super::server::Server;
use super::wire::Request;
use super::world::World;

impl World {
    /// Whether `init` may be typed: the statement is true, no lock of a former incarnation is alive on
    /// any master. A start script says so whether it is true or not, and may do no harm as long as
    /// one record is left that shows use.
    pub(crate) fn may_init(&self, part: &Part) -> bool {
        let shows_use = |server: &Server| server.data.record.floor.is_some();
        let is_true = self.servers.iter().all(|server| server.owed_until <= self.now);
        let by_script = part.plain && self.servers.iter().any(|server| shows_use(server));
        self.left.inits > 0 && (is_true || by_script)
    }

    /// Reads all masters, and sends the orders.
    pub(crate) fn init(&mut self, part: &Part) {
        self.left.inits -= 1;
        let mut person = self.clone();
        person.clients = vec![Client::new(part, true).into()];
        for master in 0..part.masters {
            if self.servers[master].up {
                person.connect(part, 0, master);
            }
        }
        let up = (0..part.masters).filter(|&master| self.servers[master].up);
        let mut answers: Vec<_> = up.map(|master| self.scored(part, master)).collect();
        if part.broken == Some(Broken::UnreadIsEmpty) {
            answers.extend(self.taken_for_empty(part, &mut person));
        }
        let nonces = vec![Nonce(0); part.masters];
        let options = options(!part.plain);
        let listed = listed(part.relists);
        if let Ok(plan) = person.clients[0].machine.plan_init(
            InitInputs { options, listed: &listed, answers: &answers, nonces: &nonces, ours: &[] },
            self.now,
        ) {
            // The clocks prove nothing, because they may be far behind the ballots.
            let others = answers.iter().filter(|answer| self.servers[answer.master].is_admitted());
            let scores = others.clone().filter_map(|answer| answer.highest).max();
            let enough = others.count() > part.masters - (part.masters / 2 + 1);
            for (master, order) in plan.orders {
                let AdmissionOp::Init(mut init) = order else { continue };
                if !self.servers[master].up {
                    continue;
                }
                if part.ballots == 0 && !part.relists && self.servers[master].is_admitted() {
                    // It lifts nothing, admits nothing and changes no set: not worth a state.
                    continue;
                }
                init.floor = scores.filter(|_| enough).unwrap_or(init.floor);
                self.orders.push((master, Request::Init(init)));
            }
        }
    }

    /// The mutant: returns the answers of the unreachable masters as if they had no record.
    fn taken_for_empty(&self, part: &Part, person: &mut Self) -> Vec<Scored> {
        let away = (0..part.masters).filter(|&master| !self.servers[master].up);
        let empty = away.map(|master| {
            let facts = self.servers[master].facts(part, self.now);
            let facts = MasterView { record: Record::default(), members: Some(0), ..facts };
            person.clients[0].machine.on(master, Event::Up(facts.clone()), self.now);
            Scored { master, asked: Incarnation::of(&facts), highest: None, facts }
        });
        empty.collect()
    }

    /// Returns `true` if an operator may raise `max_ttl`, because all masters are admitted.
    pub(crate) fn may_raise(&self) -> bool {
        self.left.raises > 0 && self.servers.iter().all(|server| server.up && server.is_admitted())
    }

    /// No client uses the longer TTL before all masters allow it.
    pub(crate) fn raise(&mut self) {
        self.left.raises -= 1;
        for server in &mut self.servers {
            server.data.record.max_ttl = Some(TTL);
        }
    }

    /// Both halves of an answer to *read the floor*, at one moment.
    pub(crate) fn scored(&self, part: &Part, master: usize) -> Scored {
        let server = &self.servers[master];
        let facts = server.facts(part, self.now);
        let asked = Incarnation::of(&facts);
        Scored { master, asked, highest: highest(&server.data, asked), facts }
    }

    /// The mutant: if no answering master has a record, the prefix is taken as new.
    pub(crate) fn appears_new(&self, part: &Part) -> bool {
        let mut up = self.servers.iter().filter(|server| server.up);
        part.broken == Some(Broken::NewWithoutRecord)
            && up.all(|server| server.data.record.nonce.is_none())
    }

    /// Sends that mutant's order in place of *begin*.
    pub(crate) fn init_unasked(
        &mut self,
        part: &Part,
        client: usize,
        master: usize,
    ) -> Option<Request> {
        let answers: Vec<_> =
            (0..self.servers.len()).map(|master| self.scored(part, master)).collect();
        let options = options(false);
        let nonces = vec![Nonce(0); answers.len()];
        let listed = listed(false);
        let plan = self.clients[client]
            .machine
            .plan_init(
                InitInputs {
                    options,
                    listed: &listed,
                    answers: &answers,
                    nonces: &nonces,
                    ours: &[],
                },
                self.now,
            )
            .ok()?;
        plan.orders.into_iter().find_map(|(ordered, order)| match order {
            AdmissionOp::Init(init) if ordered == master => Some(Request::Init(init)),
            _ => None,
        })
    }
}

/// Returns the options: no floor, and no other `max_ttl`.
fn options(again: bool) -> InitOptions {
    InitOptions { again, floor: 0, far_floor: false, max_ttl: TTL, lower: false }
}

/// The list of the person: the masters as the records name them, or spelled in another way.
fn listed(relists: bool) -> Listed {
    let names = if relists { Names::new(["another"]) } else { Names::default() };
    Listed { names, fresh: SetId(2) }
}

/// The highest score of the set of a life.
pub(crate) fn highest(data: &Data, incarnation: Incarnation) -> Option<u64> {
    Some(data.ballots(incarnation.run?)?.highest())
}
