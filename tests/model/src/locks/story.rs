//! A counterexample as readable text.

use super::action::Action;
use super::part::Part;
use super::wire::{Done, Kind, Reply, Request};
use super::world::World;

/// One line a step, with the time at which it happens.
pub(crate) fn tell(part: &Part, path: &[(World, Option<Action>)]) -> Vec<String> {
    let mut story = Vec::new();
    for pair in path.windows(2) {
        let [(before, Some(action)), (after, _)] = pair else { continue };
        if *action != Action::Tick {
            story.push(format!("t={} {}", before.now, line(part, before, *action, after)));
        }
    }
    if let Some((end, _)) = path.last() {
        story.push(format!("t={} and so it is broken", end.now));
    }
    story
}

fn line(part: &Part, before: &World, action: Action, after: &World) -> String {
    match action {
        Action::Begin(own, 0) => format!("{} asks all masters", name(own)),
        Action::Begin(own, number) => {
            format!("{} asks all masters, with ballot {number}", name(own))
        }
        Action::Execute(own, master) => {
            let said = carried_out(part, before, own, master);
            let state = state(before, after, own);
            format!("master {master} carries out {}'s {said}{state}", name(own))
        }
        Action::ExecuteLate(own, master) => {
            let said = carried_out(part, before, own, master);
            format!("master {master} carries out {}'s {said}; the reply is late", name(own))
        }
        Action::Deliver(own, master) => {
            let request = before.contenders[own].links[master].first();
            let what = request.map_or_else(String::new, what);
            let state = state(before, after, own);
            format!("{} reads the late reply of master {master} to its {what}{state}", name(own))
        }
        Action::Break(own, master) => {
            format!("the connection of {} to master {master} breaks", name(own))
        }
        Action::TimeOut(own) => format!("the node timeout of {} has passed", name(own)),
        Action::Release(own) => format!("{} gives it back", name(own)),
        Action::ReleaseAgain(own, _, master) => {
            format!("{} sends its release to master {master} again", name(own))
        }
        Action::Extend(own) => format!("{} extends", name(own)),
        Action::Leave(own) => format!("{} leaves it to the next one", name(own)),
        Action::Lapse(master) => format!("the reservation on master {master} ends"),
        Action::TakeAgain(own) => format!("{} asks those that refused again", name(own)),
        Action::HandOn(own) => {
            let token = after.handed.last().map_or(0, |handed| handed.token);
            format!("{} hands it on, with token {token}", name(own))
        }
        Action::Resume(own, number) => {
            format!("{} takes the lease over, with ballot {number}", name(own))
        }
        Action::Plant(master) => {
            format!("master {master} carries out a late SET of the first holder")
        }
        Action::Gain(master) => format!("the clock of master {master} gains a tick"),
        Action::Lose(own) => format!("the clock of {} loses a tick", name(own)),
        Action::Propose(own, number) => format!("{} proposes ballot {number}", name(own)),
        Action::Renew(own, master) => format!("{} renews its key on master {master}", name(own)),
        Action::Vanish(master) => format!("the keys of master {master} vanish"),
        Action::Forget(master) => format!("master {master} loses its data"),
        Action::Learn(own, master) => {
            format!("{} learns that master {master} has lost its data", name(own))
        }
        Action::ReadFloor(master, other) => {
            let score = before.masters[other].score.unwrap_or(0);
            format!("for the floor of master {master}, master {other} tells its score: {score}")
        }
        Action::Admit(master) => {
            let score = after.masters[master].score.unwrap_or(0);
            format!("master {master} is admitted, with the floor {score}")
        }
        Action::Tick => String::new(),
    }
}

/// Describes a master's next request and its answer.
fn carried_out(part: &Part, before: &World, own: usize, master: usize) -> String {
    let link = &before.contenders[own].links[master];
    let Some(next) = link.iter().find(|request| request.reply.is_none()) else {
        return String::new();
    };
    let mut request = next.clone();
    let mut server = before.masters[master].clone();
    let reply = server.execute(part, part.resource(own), &mut request, before.now);
    if reply.is_none() || next.done != Done::default() {
        return command(next, &request);
    }
    what(&Request { reply, ..request })
}

/// Describes the result of one command of an acquire.
fn command(before: &Request, after: &Request) -> String {
    let said = |yes: Option<bool>| if yes == Some(true) { "granted" } else { "refused" };
    if before.done.set != after.done.set {
        format!("{}: {}", setter(after.kind), said(after.done.set))
    } else if before.done.ballot != after.done.ballot {
        format!("ballot {}: {}", after.ballot, said(after.done.ballot))
    } else if matches!(before.kind, Kind::Resume(_)) {
        "extension".to_owned()
    } else {
        "GET".to_owned()
    }
}

fn name(own: usize) -> &'static str {
    ["A", "B", "C"][own]
}

/// The command that sets the key.
fn setter(kind: Kind) -> &'static str {
    match kind {
        Kind::Enter => "ENTER",
        Kind::Take => "TAKE",
        _ => "SET",
    }
}

fn what(request: &Request) -> String {
    let kind = match request.kind {
        Kind::Acquire | Kind::Enter | Kind::Take => setter(request.kind).to_owned(),
        Kind::Extend(_) => "extension".to_owned(),
        Kind::Readd => "SET again".to_owned(),
        Kind::Release => "release".to_owned(),
        Kind::Reserve => "RESERVE".to_owned(),
        Kind::Leave(to) | Kind::Exit(to) => format!("LEAVE for {}", name(to)),
        Kind::Ballot(_) => format!("ballot {}", request.ballot),
        Kind::Score => "look at the score".to_owned(),
        Kind::Resume(_) => format!("extension with ballot {}", request.ballot),
    };
    let reply = match request.reply {
        Some(Reply::Granted) => "granted".to_owned(),
        Some(Reply::Held) => "held".to_owned(),
        Some(Reply::NotOurs) => "not ours".to_owned(),
        Some(Reply::Accepted) => format!("granted, ballot {} accepted", request.ballot),
        Some(Reply::Refused | Reply::RefusedAt(_)) => {
            format!("granted, ballot {} refused", request.ballot)
        }
        Some(Reply::Score(score)) => format!("{score}"),
        Some(Reply::NoMember) => "none".to_owned(),
        Some(Reply::Unknown) | None => "unknown".to_owned(),
    };
    format!("{kind}: {reply}")
}

/// Describes the present state of a contender.
fn state(before: &World, after: &World, own: usize) -> String {
    let stage =
        |world: &World| match world.contenders[own].open().and_then(|lock| lock.machine.lease()) {
            Some(lease) if lease.deadline().is_some() => 1,
            Some(_) => 2,
            None => 0,
        };
    match (stage(before), stage(after)) {
        (0, 1) => match after.handed.last() {
            Some(handed) => format!(", and holds the lock with token {}", handed.token),
            None => ", and holds the lock".to_owned(),
        },
        (1, 2) => ", and has lost the lock".to_owned(),
        _ => String::new(),
    }
}
