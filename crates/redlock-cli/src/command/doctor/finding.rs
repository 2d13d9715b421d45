//! `Finding`: one problem, how bad it is, and its position among others.

use std::borrow::Cow;

use serde::Serialize;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// None where it concerns all masters.
    pub(super) node: Option<String>,
    pub(super) what: String,
    pub(super) impact: Cow<'static, str>,
    pub(super) fix: Cow<'static, str>,
    /// The same as `what`, without the remaining time, which differs between masters with the same
    /// problem.
    #[serde(skip)]
    pub(super) problem: String,
    #[serde(skip)]
    pub(super) rank: Rank,
}

/// How bad it is, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Locks are not granted, or one may have two holders.
    Error,
    /// The next failure may lead to that.
    Warning,
    /// A common state in places such as a developer's machine or CI. It does not affect the exit
    /// code, because operators ignore a check that always fails.
    Info,
}

/// The position of a finding among others. Effects follow their causes, whose fix also fixes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A problem that keeps a master from voting: the master is unreachable, or a right or a key is
    /// wrong.
    Hindrance,
    /// A master answered, and does not vote.
    NoVote,
    /// Too few masters vote.
    NoQuorum,
    /// A problem that keeps no master from voting.
    Rest,
}

impl Finding {
    fn new(
        severity: Severity,
        what: String,
        impact: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (problem, impact, fix) = (what.clone(), impact.into(), fix.into());
        Self { severity, node: None, what, impact, fix, problem, rank: Rank::Rest }
    }

    pub(super) fn error(
        what: impl Into<String>,
        impact: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Severity::Error, what.into(), impact, fix)
    }

    pub(super) fn warning(
        what: impl Into<String>,
        impact: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Severity::Warning, what.into(), impact, fix)
    }

    pub(super) fn info(
        what: String,
        impact: impl Into<Cow<'static, str>>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Severity::Info, what, impact, fix)
    }

    /// Returns `true` if something has to be done about it.
    pub(super) fn is_problem(&self) -> bool {
        self.severity != Severity::Info
    }

    pub(super) fn ranked(self, rank: Rank) -> Self {
        Self { rank, ..self }
    }

    /// Assigns the finding to a master. Nothing hinders a voting master.
    pub(super) fn of(self, node: &str, votes: bool) -> Self {
        let rank = if votes { Rank::Rest } else { self.rank };
        Self { node: Some(node.to_owned()), rank, ..self }
    }
}
