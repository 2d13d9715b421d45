//! A counterexample as people read it.

use super::action::Action;
use super::contender::{Contender, Stage};
use super::part::Part;
use super::wire::{Kind, Reply, Request};
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
    let name = |own: usize| ["A", "B", "C"][own];
    match action {
        Action::Begin(own) => format!("{} asks all masters", name(own)),
        Action::Execute(own, master) => {
            let said = carried_out(part, before, own, master);
            let state = state(&after.contenders[own]);
            format!("master {master} carries out {}'s {said}{state}", name(own))
        }
        Action::ExecuteLate(own, master) => {
            let said = carried_out(part, before, own, master);
            format!("master {master} carries out {}'s {said}; the reply is late", name(own))
        }
        Action::Deliver(own, master) => {
            let request = before.contenders[own].links[master].first();
            let what = request.map_or_else(String::new, what);
            let state = state(&after.contenders[own]);
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
        Action::Gain(master) => format!("the clock of master {master} gains a tick"),
        Action::Lose(own) => format!("the clock of {} loses a tick", name(own)),
        Action::Tick => String::new(),
    }
}

/// What a master was asked next, and what it said.
fn carried_out(part: &Part, before: &World, own: usize, master: usize) -> String {
    let link = &before.contenders[own].links[master];
    let Some(index) = link.iter().position(|request| request.reply.is_none()) else {
        return String::new();
    };
    let request = &link[index];
    let mut server = before.masters[master].clone();
    let reply = server.execute(part, request.kind, request.value, before.now);
    what(&Request { reply: Some(reply), ..request.clone() })
}

fn what(request: &Request) -> String {
    let kind = match request.kind {
        Kind::Acquire => "SET",
        Kind::Extend(_) => "extension",
        Kind::Readd => "SET again",
        Kind::Release => "release",
    };
    let reply = match request.reply {
        Some(Reply::Granted) => "granted",
        Some(Reply::Held) => "held",
        Some(Reply::NotOurs) => "not ours",
        Some(Reply::Unknown) | None => "unknown",
    };
    format!("{kind}: {reply}")
}

fn state(contender: &Contender) -> &'static str {
    match contender.open().map(|lock| &lock.stage) {
        Some(Stage::Lease(lease)) if lease.deadline().is_some() => ", and holds the lock",
        Some(Stage::Lease(_)) => ", and has lost the lock",
        _ => "",
    }
}
