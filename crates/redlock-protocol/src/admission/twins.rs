//! `Twins`: finds the addresses that lead to one server. See rule A4 of `docs/PROTOCOL.md`.

use redlock_core::admission::RunId;

/// The process that each address shows, and which of several addresses of one process is the
/// master.
///
/// Two addresses that lead to one process are one master. Otherwise a key on one server would be
/// two copies. An address shows its process until another process answers there, even while it is
/// unreachable. Among several addresses of one process, the present master stays the master.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Twins {
    shown: Vec<Option<RunId>>,
    twins: Vec<Option<usize>>,
}

impl Twins {
    pub(super) fn new(masters: usize) -> Self {
        Self { shown: vec![None; masters], twins: vec![None; masters] }
    }

    /// Returns the process that `master` shows, or `None` if it was never reached.
    pub(super) fn shown(&self, master: usize) -> Option<RunId> {
        self.shown[master]
    }

    /// Returns the master of which this address is a duplicate.
    pub(super) fn twin_of(&self, master: usize) -> Option<usize> {
        self.twins[master]
    }

    /// Records that this process answers at `master`.
    pub(super) fn show(&mut self, master: usize, process: RunId) {
        let before = self.shown[master].replace(process);
        // A new process has no earlier claim than its duplicate.
        if before != Some(process) || self.twins[master].is_some() {
            self.twins[master] = self.first(master);
        }
        // A duplicate becomes a master when the other address shows another process.
        for other in 0..self.shown.len() {
            if self.twins[other].is_some() {
                self.twins[other] = self.first(other);
            }
        }
    }

    /// Returns the other master that shows the same process and is not a duplicate itself.
    fn first(&self, master: usize) -> Option<usize> {
        (0..self.shown.len()).find(|other| {
            *other != master
                && self.shown[*other] == self.shown[master]
                && self.twins[*other].is_none()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(twins: &mut Twins, master: usize, process: u8) {
        twins.show(master, RunId::new([process; 20]));
    }

    fn two(twins: &Twins) -> [Option<usize>; 2] {
        [0, 1].map(|master| twins.twin_of(master))
    }

    #[test]
    fn second_address_of_a_process_is_a_duplicate_of_the_first() {
        let mut twins = Twins::new(2);
        show(&mut twins, 0, 1);
        show(&mut twins, 1, 1);
        assert_eq!(two(&twins), [None, Some(0)]);
        show(&mut twins, 0, 1);
        assert_eq!(two(&twins), [None, Some(0)]);
    }

    #[test]
    fn duplicate_becomes_a_master_when_the_first_address_changes() {
        let mut twins = Twins::new(2);
        show(&mut twins, 1, 1);
        show(&mut twins, 0, 1);
        assert_eq!(two(&twins), [Some(1), None]);
        show(&mut twins, 1, 2);
        assert_eq!(two(&twins), [None, None]);
    }

    #[test]
    fn two_addresses_that_swap_servers_become_two_masters() {
        let mut twins = Twins::new(2);
        show(&mut twins, 0, 1);
        show(&mut twins, 1, 2);
        show(&mut twins, 0, 2);
        assert_eq!(two(&twins), [Some(1), None]);
        show(&mut twins, 1, 1);
        assert_eq!(two(&twins), [None, None]);
    }

    /// For any sequence of processes at three addresses, no process is two masters, and each
    /// process is one.
    #[test]
    fn each_process_is_exactly_one_master() {
        for code in 0..3_usize.pow(10) {
            let mut twins = Twins::new(3);
            let mut shown = [None; 3];
            for step in 0..5 {
                let (master, process) =
                    (code / 9_usize.pow(step) % 3, code / 9_usize.pow(step) / 3 % 3);
                shown[master] = Some(process);
                show(&mut twins, master, process as u8);
                for process in 0..3 {
                    let addresses: Vec<usize> =
                        (0..3).filter(|master| shown[*master] == Some(process)).collect();
                    let masters =
                        addresses.iter().filter(|master| twins.twin_of(**master).is_none());
                    assert_eq!(masters.count(), addresses.len().min(1), "{code} {step} {process}");
                }
            }
        }
    }
}
