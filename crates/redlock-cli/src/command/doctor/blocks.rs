//! The findings as text: each problem once, with the names of its masters, after the problems that
//! cause it.

use super::finding::{Finding, Rank, Severity};

/// One problem, and where it was found.
pub(super) struct Block<'a> {
    first: &'a Finding,
    nodes: Vec<&'a str>,
    /// Whether all masters have it in the very same words.
    is_alike: bool,
}

/// Returns the problems. Causes precede their effects, and errors precede warnings.
pub(super) fn blocks(findings: &[Finding]) -> Vec<Block<'_>> {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| (finding.rank, finding.severity));
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for finding in sorted {
        match blocks.iter_mut().find(|block| block.is_about(finding)) {
            Some(block) => block.add(finding),
            None => blocks.push(Block::new(finding)),
        }
    }
    blocks
}

impl<'a> Block<'a> {
    fn new(first: &'a Finding) -> Self {
        Self { first, nodes: first.node.as_deref().into_iter().collect(), is_alike: true }
    }

    fn is_about(&self, finding: &Finding) -> bool {
        key(self.first) == key(finding)
    }

    fn add(&mut self, finding: &'a Finding) {
        self.is_alike &= self.first.what == finding.what;
        self.nodes.extend(finding.node.as_deref());
    }

    /// Returns `true` if something has to be done about it.
    pub(super) fn is_problem(&self) -> bool {
        self.first.is_problem()
    }

    fn what(&self) -> &str {
        if self.is_alike { &self.first.what } else { &self.first.problem }
    }

    /// The problem in one part of a line. The names of many masters would hide it.
    pub(super) fn line(&self) -> String {
        match self.nodes[..] {
            [] => self.what().to_owned(),
            [node] => format!("{node} {}", self.what()),
            _ => format!("{} at {} masters", self.what(), self.nodes.len()),
        }
    }

    /// The problem with all that is known about it.
    pub(super) fn people(&self) -> String {
        let severity = match self.first.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "info",
        };
        let at = match self.nodes[..] {
            [] => String::new(),
            _ => format!("\n  at:     {}", self.nodes.join(", ")),
        };
        let Finding { impact, fix, .. } = self.first;
        format!("{severity}: {}{at}\n  impact: {impact}\n  fix:    {fix}", self.what())
    }
}

/// Returns the fields that findings of the same problem share.
fn key(of: &Finding) -> (Rank, Severity, &str, &str, &str) {
    (of.rank, of.severity, &of.problem, &of.impact, &of.fix)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redlock_quorum::{Cause, NotAdmitted, WhyNot};

    use super::super::examined::of_probe;
    use super::super::findings::no_vote;
    use super::super::no_vote::Circumstances;
    use super::super::probe::Probe;
    use super::*;

    fn quarantined(node: &str, left: u64) -> Finding {
        let mut not = NotAdmitted::new(WhyNot::Restarted);
        not.in_quarantine = true;
        not.votes_again = Some(Duration::from_secs(left));
        no_vote(
            &Cause::NotAdmitted(not.into()),
            Circumstances {
                is_hindered: false,
                may_be_new: false,
                quarantine: Duration::ZERO,
                record: "",
            },
        )
        .of(node, false)
    }

    #[test]
    fn quarantines_that_end_at_different_times_are_one_problem() {
        let findings = [quarantined("a:1", 10), quarantined("b:1", 20)];
        let blocks = blocks(&findings);
        let not = "not admitted: restarted, or lost its fencing data, in quarantine";
        assert_eq!(blocks[0].line(), format!("{not} at 2 masters"));
        assert!(blocks[0].people().starts_with(&format!("error: {not}\n  at:     a:1, b:1\n")));
        assert_eq!(blocks.len(), 1);
        assert!(findings[1].what.contains("votes again in 20.0 s"), "of each by itself");
    }

    #[test]
    fn one_master_has_its_name_and_its_time_in_the_line() {
        let line = blocks(&[quarantined("a:1", 10)])[0].line();
        assert!(line.starts_with("a:1 not admitted: ") && line.contains("10.0 s"), "{line}");
    }

    #[test]
    fn problem_of_a_voting_master_is_not_the_cause_of_others() {
        let probe = Probe { missing_rights: vec!["+hset".into()], ..Probe::default() };
        let lacks = |votes| of_probe(&probe, Some(Duration::ZERO)).remove(0).of("a:1", votes);
        let first = |lacks| blocks(&[quarantined("b:1", 9), lacks])[0].line();
        assert!(first(lacks(true)).starts_with("b:1 not admitted"));
        assert!(first(lacks(false)).starts_with("a:1 its user lacks +hset"));
    }
}
