//! `Standing`: which masters count, by what all of them together show.

use redlock_core::{Facts, Role};

/// Whether a master counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    /// It does.
    Counts,
    /// The same server process answers for this other master, which counts already.
    TwinOf(usize),
    /// It follows another server.
    Replica,
    /// It is something else, such as a sentinel.
    NotMaster,
    /// It is a node of a cluster.
    Cluster,
}

/// What each master shows, and which of them count.
///
/// Two addresses that lead to one process are one master: otherwise a key held on one server
/// would count twice. An address shows its process until it is seen with another one, even while
/// it is not reached. Of several that show one process, that which counts already goes on to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Standings {
    shown: Vec<Option<String>>,
    standings: Vec<Standing>,
}

impl Standings {
    pub(crate) fn new(masters: usize) -> Self {
        Self { shown: vec![None; masters], standings: vec![Standing::Counts; masters] }
    }

    pub(crate) fn of(&self, master: usize) -> Standing {
        self.standings[master]
    }

    /// `master` is connected, and shows these facts. Says whether another process answers there
    /// than did before.
    pub(crate) fn up(&mut self, master: usize, facts: &Facts) -> bool {
        let before = self.shown[master].replace(facts.run_id.clone());
        let is_new = before.as_ref() != Some(&facts.run_id);
        let was_twin = matches!(self.standings[master], Standing::TwinOf(_));
        // A new process has no older right than its twin.
        let own = judge(facts);
        self.standings[master] = match self.twin(master) {
            Some(twin) if own == Standing::Counts && (is_new || was_twin) => Standing::TwinOf(twin),
            _ => own,
        };
        self.review();
        is_new && before.is_some()
    }

    /// The other master that counts and shows the same process.
    fn twin(&self, master: usize) -> Option<usize> {
        (0..self.shown.len()).find(|other| {
            *other != master
                && self.shown[*other] == self.shown[master]
                && self.standings[*other] == Standing::Counts
        })
    }

    /// A twin counts once the other shows another process.
    fn review(&mut self) {
        for master in 0..self.shown.len() {
            if let Standing::TwinOf(_) = self.standings[master] {
                self.standings[master] = match self.twin(master) {
                    Some(twin) => Standing::TwinOf(twin),
                    None => Standing::Counts,
                };
            }
        }
    }
}

fn judge(facts: &Facts) -> Standing {
    match facts.role {
        _ if facts.is_cluster => Standing::Cluster,
        Role::Master => Standing::Counts,
        Role::Replica => Standing::Replica,
        _ => Standing::NotMaster,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(standings: &mut Standings, master: usize, run_id: &str) -> bool {
        standings.up(master, &Facts::master(run_id))
    }

    #[test]
    fn the_second_address_of_one_process_is_the_twin_of_the_first() {
        let mut standings = Standings::new(2);
        assert!(!shows(&mut standings, 0, "x"));
        shows(&mut standings, 1, "x");
        assert_eq!((standings.of(0), standings.of(1)), (Standing::Counts, Standing::TwinOf(0)));
        shows(&mut standings, 0, "x");
        assert_eq!((standings.of(0), standings.of(1)), (Standing::Counts, Standing::TwinOf(0)));
    }

    #[test]
    fn a_twin_counts_once_the_other_shows_another_process() {
        let mut standings = Standings::new(2);
        shows(&mut standings, 1, "x");
        shows(&mut standings, 0, "x");
        assert_eq!((standings.of(0), standings.of(1)), (Standing::TwinOf(1), Standing::Counts));
        assert!(shows(&mut standings, 1, "y"), "another process answers");
        assert_eq!((standings.of(0), standings.of(1)), (Standing::Counts, Standing::Counts));
    }

    #[test]
    fn two_addresses_that_swap_their_servers_both_count_in_the_end() {
        let mut standings = Standings::new(2);
        shows(&mut standings, 0, "x");
        shows(&mut standings, 1, "y");
        shows(&mut standings, 0, "y");
        assert_eq!((standings.of(0), standings.of(1)), (Standing::TwinOf(1), Standing::Counts));
        shows(&mut standings, 1, "x");
        assert_eq!((standings.of(0), standings.of(1)), (Standing::Counts, Standing::Counts));
    }

    /// Whatever three addresses show, one after the other: no process counts twice, and one of
    /// those that show it counts.
    #[test]
    fn no_process_ever_counts_twice_and_none_is_left_out() {
        for code in 0..3_usize.pow(10) {
            let mut standings = Standings::new(3);
            let mut shown = [None; 3];
            for step in 0..5 {
                let (master, run_id) =
                    (code / 9_usize.pow(step) % 3, code / 9_usize.pow(step) / 3 % 3);
                shown[master] = Some(run_id);
                shows(&mut standings, master, &run_id.to_string());
                for process in 0..3 {
                    let addresses: Vec<usize> =
                        (0..3).filter(|master| shown[*master] == Some(process)).collect();
                    let counting = addresses
                        .iter()
                        .filter(|master| standings.of(**master) == Standing::Counts)
                        .count();
                    assert_eq!(counting, addresses.len().min(1), "{code} {step} {process}");
                }
            }
        }
    }

    #[test]
    fn replicas_cluster_nodes_and_sentinels_do_not_count() {
        let mut standings = Standings::new(3);
        let mut facts = Facts::master("a");
        facts.role = Role::Replica;
        standings.up(0, &facts);
        facts = Facts::master("b");
        facts.is_cluster = true;
        standings.up(1, &facts);
        facts = Facts::master("c");
        facts.role = Role::Other;
        standings.up(2, &facts);
        let all = [0, 1, 2].map(|master| standings.of(master));
        assert_eq!(all, [Standing::Replica, Standing::Cluster, Standing::NotMaster]);
        standings.up(0, &Facts::master("a"));
        assert_eq!(standings.of(0), Standing::Counts, "it was promoted");
    }
}
