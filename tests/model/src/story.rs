//! A counterexample as people read it.

use crate::action::Action;
use crate::part::Part;
use crate::wire::Request;
use crate::world::World;

/// One line a step; the passing of time is told with the step after it.
pub(crate) fn tell(part: &Part, path: Vec<(World, Option<Action>)>) -> Vec<String> {
    let mut lines = Vec::new();
    for pair in path.windows(2) {
        let [(before, Some(action)), (after, _)] = pair else { continue };
        if *action != Action::Tick {
            lines.push(line(part, before, *action, after));
        }
    }
    if let Some((end, _)) = path.last() {
        lines.push(format!("t={} that breaks it", end.now));
    }
    lines
}

fn line(_part: &Part, before: &World, action: Action, after: &World) -> String {
    let said = match action {
        Action::Arrive(client, master) => {
            let request = before.clients[client].links[master].wire.as_ref();
            let what = request.map_or_else(String::new, what);
            format!("client {client}'s {what} arrives at master {master}{}", state(after, master))
        }
        Action::Stray(index) => {
            let (master, request) = &before.strays[index];
            let what = what(request);
            format!("a late {what} of a gone connection arrives at master {master}{}", state(after, *master))
        }
        Action::Order(index) => {
            let (master, request) = &before.orders[index];
            format!("the person's {} arrives at master {master}{}", what(request), state(after, *master))
        }
        other => format!("{other:?}"),
    };
    format!("t={} {said}", before.now)
}

fn what(request: &Request) -> String {
    match request {
        Request::Look => "look".to_owned(),
        Request::Begin(_) => "begin".to_owned(),
        Request::Note(note) => format!("note (nonce {})", note.nonce.0),
        Request::Admit(admit) => {
            format!("admit (nonce {}, {:?}, floor {})", admit.nonce.0, admit.way, admit.floor)
        }
        Request::Init(init) => format!("init (floor {}, level {})", init.floor, init.level),
        Request::Floor(_) => "read of the floor".to_owned(),
    }
}

fn state(world: &World, master: usize) -> String {
    let server = &world.servers[master];
    let time = server.time(world.now);
    match &server.data.record.quarantine {
        Some(found) => format!(
            " (TIME {time}): nonce {:?}, until {}, notes {:?}",
            server.data.record.nonce.map(|nonce| nonce.0),
            found.until,
            found.notes.iter().map(|(process, time)| (process.0, *time)).collect::<Vec<_>>()
        ),
        None => format!(" (TIME {time}): run {:?}", server.data.record.run.map(|run| run.run.0)),
    }
}
