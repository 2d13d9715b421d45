//! A counterexample as readable text.

use super::action::Action;
use super::world::World;

/// One line a step, with the milliseconds since the start.
pub(crate) fn tell(path: &[(World, Option<Action>)]) -> Vec<String> {
    let mut story = Vec::new();
    for pair in path.windows(2) {
        let [(before, Some(action)), (after, _)] = pair else { continue };
        story.push(format!("t={} {}{}", time(after), line(before, *action), state(before, after)));
    }
    if let Some((end, _)) = path.last() {
        story.push(format!("t={} and so it is broken", time(end)));
    }
    story
}

fn time(world: &World) -> String {
    format!("{:.1}", (world.now.as_nanos() - 1_000_000_000) as f64 / 1e6)
}

fn line(before: &World, action: Action) -> String {
    match action {
        Action::Ask(own) => format!("a caller of {} requests the lock", name(own)),
        Action::Cancel(own, caller) => format!("caller {caller} of {} gives up", name(own)),
        Action::Return(own, caller) => format!("caller {caller} of {} returns it", name(own)),
        Action::Arrive(own, master) => {
            let first = before.processes[own].links[master].requests.front();
            let what = first.map_or_else(String::new, |sent| format!("{:?}", sent.op.verb()));
            format!("master {master} carries out {what} of {}", name(own))
        }
        Action::Push(own, master) => {
            let first = before.processes[own].links[master].pushes.front();
            let what = first.map_or_else(String::new, |push| format!("{push:?}"));
            format!("{} reads a push of master {master}: {what}", name(own))
        }
        Action::Break(own, master, executed) => {
            let after = if executed > 0 { ", after a request was carried out" } else { "" };
            format!("the connection of {} to master {master} breaks{after}", name(own))
        }
        Action::Tick(own) => format!("the alarm of {} is due", name(own)),
        Action::Stop(own) => format!("{} stops", name(own)),
        Action::Close(own) => format!("{} is shut down", name(own)),
    }
}

fn state(before: &World, after: &World) -> String {
    let holders = |world: &World| -> Vec<String> {
        let processes = world.processes.iter().enumerate();
        let held = processes.filter_map(|(own, process)| Some((own, process.holder()?)));
        held.map(|(own, caller)| format!("caller {caller} of {}", name(own))).collect()
    };
    let held = holders(after);
    if held.is_empty() || held == holders(before) {
        return String::new();
    }
    format!("; {} has the lock", held.join(" and "))
}

fn name(own: usize) -> char {
    char::from(b'A' + own as u8)
}
