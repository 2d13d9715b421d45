//! The scripts, and what the mutants run instead.

use super::broken::Broken;
use super::part::{Part, TTL};
use super::server::Server;
use super::wire::Request;
use super::world::{World, Wrong};
use redlock_core::admission::{
    Admit, Begin, Init, Nonce, Note, Outcome, Record, Reply, Way, quarantine_length,
};
use redlock_testkit::{Ballots, Data};

impl World {
    /// Runs a script on a master, or what a mutant runs instead.
    pub(crate) fn run(&mut self, part: &Part, master: usize, request: Request) -> Reply {
        let had_set = self.servers[master].data.record.set.is_some();
        let reply = self.run_script(part, master, request);
        if had_set && self.servers[master].data.record.set.is_none() {
            self.wrong = Some(Wrong::SetRemoved);
        }
        reply
    }

    fn run_script(&mut self, part: &Part, master: usize, request: Request) -> Reply {
        match request {
            Request::Begin(begin) => self.run_begin(part, master, begin),
            Request::Note(note) => self.run_note(part, master, note),
            Request::Admit(admit) => self.run_admit(part, master, admit),
            Request::Init(init) => self.run_init(part, master, init),
            Request::Probe | Request::Floor(_) => unreachable!("no script"),
        }
    }

    fn run_begin(&mut self, part: &Part, master: usize, begin: Begin) -> Reply {
        let (now, nonce) = (self.now, Nonce(self.fresh));
        let server = &mut self.servers[master];
        let (time, before) = (server.time(now), server.data.clone());
        let mut order = Begin { nonce, ..begin };
        bend_begin(part.broken, &mut server.data, &mut order);
        let reply = server.data.begin(time, &order);
        if server.data.record.nonce != Some(nonce) {
            if server.data.record.max_ttl == before.record.max_ttl {
                server.data = before;
            }
            let record = server.data.record.clone();
            return Reply { record, ..reply };
        }
        self.wrong = wrong(&self.servers[master], &before, &order, time).or(self.wrong);
        self.fresh += 1;
        let server = &mut self.servers[master];
        server.lost = false;
        bend_begun(part.broken, &mut server.data, before.record, &order);
        let (record, members) = (server.data.record.clone(), server.data.members());
        Reply { record, members, ..reply }
    }

    fn run_note(&mut self, part: &Part, master: usize, mut note: Note) -> Reply {
        let (now, server) = (self.now, &mut self.servers[master]);
        let noted = server.data.record.quarantine.as_ref();
        match part.broken {
            Some(Broken::NoteWithoutNonce) => {
                note.nonce = server.data.record.nonce.unwrap_or(note.nonce);
            }
            Some(Broken::NoLaterNotes) if noted.is_some_and(|found| !found.notes.is_empty()) => {
                note.times.clear();
            }
            _ => {}
        }
        let time = server.time(now);
        server.data.note(time, &note)
    }

    fn run_admit(&mut self, part: &Part, master: usize, mut admit: Admit) -> Reply {
        let (now, server) = (self.now, &mut self.servers[master]);
        let record = &server.data.record;
        let mut time = server.time(now);
        match part.broken {
            Some(Broken::AdmitWithoutNonce) => admit.nonce = record.nonce.unwrap_or(admit.nonce),
            Some(Broken::AdmitWithoutIdentity) => {
                let id = record.quarantine.as_ref().map(|found| found.id);
                admit.identity = id.unwrap_or(admit.identity);
            }
            Some(Broken::NotedWithoutMore) if admit.way == Way::Noted => {
                time += quarantine_length(TTL);
            }
            _ => {}
        }
        let mut reply = server.data.admit(time, &admit);
        if reply.outcome == Outcome::Done && part.broken == Some(Broken::NonceForgotten) {
            server.data.record.nonce = None;
            reply.record.nonce = None;
        }
        reply
    }

    fn run_init(&mut self, part: &Part, master: usize, mut init: Init) -> Reply {
        let (now, server) = (self.now, &mut self.servers[master]);
        init.nonce = Nonce(self.fresh);
        if part.broken == Some(Broken::InitActsLate) {
            init.until = u64::MAX;
        }
        if part.broken == Some(Broken::InitWithoutCompare) {
            let admitted = init.expect.run == Some(init.identity);
            if !admitted {
                server.data.record.run = None;
            }
            init.expect = server.data.record.seen();
            if let Some(change) = &mut init.set {
                change.from.clone_from(&server.data.record.set);
            }
        }
        let time = server.time(now);
        let reply = server.data.init(time, &init);
        if server.data.record.nonce == Some(init.nonce) {
            self.fresh += 1;
            server.lost = false;
        } else if reply.outcome == Outcome::Done && part.broken == Some(Broken::InitLowers) {
            for (_, ballots) in &mut server.data.sets {
                *ballots = Ballots::new(ballots.members, init.level);
            }
        }
        reply
    }
}

/// Applies a mutant to *begin*, and to the data that it finds.
fn bend_begin(broken: Option<Broken>, data: &mut Data, order: &mut Begin) {
    let waiting = data.record.quarantine_of(order.identity).is_some();
    match broken {
        Some(Broken::BeginWithoutCompare) => order.expect = data.record.seen(),
        Some(Broken::FarAheadStands) if waiting => order.expect.nonce = Some(Nonce(999)),
        Some(Broken::UntilByClient) if waiting && order.expect == data.record.seen() => {
            data.record.quarantine = None;
            order.expect = data.record.seen();
        }
        _ => {}
    }
}

/// Applies a mutant to the result of *begin*.
fn bend_begun(broken: Option<Broken>, data: &mut Data, before: Record, order: &Begin) {
    match broken {
        Some(Broken::RunKept) => data.record.run = before.run,
        Some(Broken::SetRemoved) => data.record.set = None,
        Some(Broken::NotesKept) => {
            let former = before.quarantine;
            if let (Some(former), Some(found)) = (former, &mut data.record.quarantine) {
                found.notes = former.notes;
            }
        }
        Some(Broken::NoQuarantine) => {
            let (nonce, identity) = (order.nonce, order.identity);
            let (way, set) = (Way::Known, None);
            let admit = Admit { nonce, identity, way, floor: 31, set, until: u64::MAX };
            data.admit(u64::MAX, &admit);
        }
        _ => {}
    }
}

/// Returns `true` if a *begin* wrote without a reason.
///
/// A *begin* that was sent before the identity changed may move an end once more, as the last one.
fn wrong(server: &Server, before: &Data, order: &Begin, time: u64) -> Option<Wrong> {
    if server.lost {
        return None;
    }
    let identity = server.true_identity();
    if before.record.admits(identity) {
        return Some(Wrong::Unseated);
    }
    let waiting = before.record.quarantine_of(identity);
    let end = time + before.record.length();
    let moved = waiting.is_some_and(|found| found.until <= end);
    (moved && order.identity == server.identity).then_some(Wrong::EndMoved)
}
