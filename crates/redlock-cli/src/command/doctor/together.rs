//! Problems of all masters together.

use redlock_quorum::{NodeReport, Standing, quorum};

use super::finding::{Finding, Rank};
use crate::duration::spelled;
use crate::lists;

/// Returns the problems of the list. Duplicate addresses count for the quorum, but not as machines.
pub(super) fn find(nodes: &[NodeReport]) -> impl Iterator<Item = Finding> {
    let is_server = |node: &&NodeReport| !node.cause.as_ref().is_some_and(lists::is_duplicate);
    let servers: Vec<&NodeReport> = nodes.iter().filter(is_server).collect();
    [no_quorum(nodes), even(servers.len()), one_host(&servers), limits_differ(nodes)]
        .into_iter()
        .flatten()
}

fn no_quorum(nodes: &[NodeReport]) -> Option<Finding> {
    let votes = nodes.iter().filter(|node| node.standing == Standing::Admitted).count();
    let needed = quorum(nodes.len());
    (votes < needed).then(|| {
        let what = format!("no quorum: {votes} of {} masters vote, {needed} needed", nodes.len());
        let fix = "fix the non-voting masters";
        Finding::error(what, "no lock is granted or extended", fix).ranked(Rank::NoQuorum)
    })
}

/// One master more of an even number is one more that can fail, and helps no quorum.
fn even(masters: usize) -> Option<Finding> {
    let spare = masters - quorum(masters);
    match masters {
        2 => {
            let what = "2 masters tolerate no failure".to_owned();
            Some(Finding::warning(
                what,
                "losing either one stops all locking",
                "use three or five masters",
            ))
        }
        _ if masters.is_multiple_of(2) => {
            let what =
                format!("{masters} masters: {spare} can fail, the same as with {}", masters - 1);
            let impact = "an even number adds a machine that can fail, but tolerates no additional \
                failure";
            let fix = format!("use {} masters, of which {} can fail", masters + 1, spare + 1);
            Some(Finding::info(what, impact, fix))
        }
        _ => None,
    }
}

fn one_host(nodes: &[&NodeReport]) -> Option<Finding> {
    let host = |node: &&NodeReport| node.node.rsplit_once(':').map(|(host, _)| host.to_owned());
    let hosts: Vec<String> = nodes.iter().filter_map(host).collect();
    let count = |host: &String| hosts.iter().filter(|other| *other == host).count();
    let host = hosts.iter().find(|host| count(host) > 1)?;
    let what = format!("{} masters are on {host}", count(host));
    let impact = "they fail together, and one wrong clock affects all of them";
    Some(Finding::info(what, impact, "run each master on a separate machine"))
}

fn limits_differ(nodes: &[NodeReport]) -> Option<Finding> {
    let limits = nodes.iter().filter_map(|node| node.server.as_ref()?.max_ttl);
    let mut limits: Vec<_> = limits.collect();
    limits.sort_unstable();
    let (least, most) = (limits.first()?, limits.last()?);
    (least != most).then(|| {
        let what = format!(
            "max_ttl is {} on one master and {} on another",
            spelled(*least),
            spelled(*most)
        );
        let impact = "each client uses the smallest value it has read, so limits can differ between \
            clients";
        Finding::warning(what, impact, "run `redlock init` to raise all of them to the largest")
    })
}
