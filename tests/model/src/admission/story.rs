//! A counterexample as readable text.

use super::action::Action;
use super::part::Loss;
use super::wire::Request;
use super::world::World;

/// One line a step, with the time at which it happens.
pub(crate) fn tell(path: &[(World, Option<Action>)]) -> Vec<String> {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for pair in path.windows(2) {
        let [(before, Some(action)), (after, _)] = pair else { continue };
        if *action == Action::Tick {
            continue;
        }
        let said = format!("t={} {}", before.now, line(before, *action, after));
        match lines.last_mut().filter(|(last, _)| *last == said) {
            Some((_, times)) => *times += 1,
            None => lines.push((said, 1)),
        }
    }
    let mut story: Vec<_> = lines.into_iter().map(repeated).collect();
    if let Some((end, _)) = path.last() {
        story.push(format!("t={} and so it is broken", end.now));
    }
    story
}

fn repeated((line, times): (String, usize)) -> String {
    if times == 1 { line } else { format!("{line}, {times} times") }
}

fn line(before: &World, action: Action, after: &World) -> String {
    match action {
        Action::Arrive(client, master) => {
            let request = before.clients[client].links[master].wire.as_ref();
            let what = request.map_or_else(String::new, what);
            format!("client {client}'s {what} arrives at master {master}: {}", state(after, master))
        }
        Action::Stray(index) => late(before, index, after),
        Action::Order(index) => {
            let (master, request) = &before.orders[index];
            format!("the {} arrives at master {master}: {}", what(request), state(after, *master))
        }
        Action::Lose(master, loss) => format!("master {master} {}", lost(loss)),
        Action::Visit(client) => format!("client {client} starts"),
        Action::Die(client) => format!("client {client} dies"),
        Action::Connect(client, master) => format!("client {client} connects to master {master}"),
        Action::Drop(client, master) => {
            format!("the connection of client {client} to master {master} breaks")
        }
        Action::Push(client, master) => format!("client {client} reads master {master}'s push"),
        Action::Save(master) => format!("the replica or snapshot of master {master} catches up"),
        Action::Step(master, stride) => {
            format!("the clock of master {master} is stepped by {stride}")
        }
        Action::Flip(master) => format!("master {master} forgets that it was a replica"),
        Action::Stop(master) => format!("master {master} stops for good"),
        Action::Init => "a person types init, which reads all masters".to_owned(),
        Action::Raise => "a person raises max_ttl on all masters".to_owned(),
        Action::Grab(client, master) => {
            format!("master {master} grants the lock to client {client}")
        }
        Action::Ballot(master) => format!("a ballot reaches master {master}"),
        Action::Tick => String::new(),
    }
}

fn late(before: &World, index: usize, after: &World) -> String {
    let (master, request) = &before.strays[index];
    let (what, state) = (what(request), state(after, *master));
    format!("a late {what} of a connection that is gone arrives at master {master}: {state}")
}

fn lost(loss: Loss) -> &'static str {
    match loss {
        Loss::RestartEmpty => "restarts empty",
        Loss::RestartSaved => "restarts with its old snapshot",
        Loss::RestartReplica => "restarts with an old snapshot, as a former replica",
        Loss::Flush => "is flushed",
        Loss::Failover => "fails over to its lagging replica and back",
        Loss::PutBack => "gets a copy of its data from before",
    }
}

fn what(request: &Request) -> String {
    match request {
        Request::Probe => "probe".to_owned(),
        Request::Begin(_) => "begin".to_owned(),
        Request::Note(note) => format!("note for nonce {}", note.nonce.0),
        Request::Admit(admit) => {
            format!("admit for nonce {}, {:?}, floor {}", admit.nonce.0, admit.way, admit.floor)
        }
        Request::Init(init) => format!("init with floor {}, level {}", init.floor, init.level),
        Request::Floor(_) => "read of the floor".to_owned(),
    }
}

fn state(world: &World, master: usize) -> String {
    let server = &world.servers[master];
    let record = &server.data.record;
    let time = server.time(world.now);
    let Some(quarantine) = &record.quarantine else {
        return format!(
            "TIME {time}, {}",
            if server.is_admitted() { "admitted" } else { "no quarantine" }
        );
    };
    let nonce = record.nonce.map_or(0, |nonce| nonce.0);
    let notes = quarantine
        .notes
        .iter()
        .map(|(process, time)| format!(", noted {}@{time}", process.bytes()[7]));
    let notes: String = notes.collect();
    format!("TIME {time}, nonce {nonce}, until {}{notes}", quarantine.until)
}
