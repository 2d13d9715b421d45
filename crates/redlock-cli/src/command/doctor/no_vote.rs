//! Why a master does not vote, what that costs, and what cures it.

use redlock_quorum::server_error::ServerError;
use redlock_quorum::{Cause, NotAdmitted, WhyNot};

use crate::lists;

/// Why that matters, and the fix. `is_hindered`: keys or rights of the master are wrong, so that
/// no quarantine begins or ends there. `may_be_new`: all masters may be.
pub(super) fn of(
    cause: &Cause,
    is_hindered: bool,
    may_be_new: bool,
) -> (&'static str, &'static str) {
    match cause {
        Cause::TwinOf(_) => {
            ("this server is listed twice, and only one address votes", "list each server once")
        }
        Cause::NotAdmitted(not) if is_hindered && not.why.is_ended_by_quarantine() => {
            (FORGOT, "fix this master's other findings first; its quarantine cannot end until then")
        }
        // The finding about the right or the key has the only fix.
        Cause::NotAdmitted(not) if is_hindered && not.why == WhyNot::Denied => {
            (UNTOLD, "fix this master's other findings first")
        }
        Cause::NotAdmitted(not) => not_admitted(not, may_be_new),
        Cause::ErrorReply(text) => error_reply(text, cause.is_curable()),
        // The cause is text. What comes from TLS has the word in it, and the URL to write.
        Cause::NotConnected(words) | Cause::Unusable(words) if words.contains("rediss://") => (
            MISSED,
            "if this port speaks TLS, write rediss://, or give the port that does not; else \
             check the server and the network",
        ),
        // A certificate was rejected, so the port speaks TLS.
        Cause::Unusable(_) if cause.is_of_tls() => {
            (MISSED, "check its certificate, --tls-ca, --tls-cert and --tls-key")
        }
        Cause::NotConnected(words) | Cause::Unusable(words) if words.contains("TLS") => (
            MISSED,
            "if this port does not speak TLS, write redis://, or give the port that does; if it \
             does, check its certificate, --tls-ca, --tls-cert and --tls-key",
        ),
        _ => (MISSED, "check the server and the network"),
    }
}

/// Errors that last come from who we are and what we may do. Others pass, or are the server's own.
fn error_reply(text: &str, passes: bool) -> (&'static str, &'static str) {
    match ServerError::of(text) {
        ServerError::UnknownCommand => (
            "it does not vote",
            "remove rename-command for this command from its configuration and restart it, or upgrade it",
        ),
        ServerError::Denied => (
            "it does not vote",
            "grant its user the missing rights, which `redlock acl --check` names",
        ),
        _ if !passes => {
            ("it does not vote", "check the password and the rights of the user in its URL")
        }
        ServerError::Busy => (
            "a running script blocks the server",
            "find out who runs it, and stop it with SCRIPT KILL",
        ),
        ServerError::Loading => LOADING,
        _ => (MISSED, "check the server: its error is above"),
    }
}

fn not_admitted(not: &NotAdmitted, may_be_new: bool) -> (&'static str, &'static str) {
    match not.why {
        WhyNot::New if may_be_new => {
            let fix = "if all masters are new, run `redlock init`; otherwise wait for the \
                quarantine, which starts with the next lock request";
            (FORGOT, fix)
        }
        why if why.is_ended_by_quarantine() => {
            let fix = "wait; its quarantine begins when a client asks for a lock, and ends by a \
                        client that stays or by the clocks of two masters";
            (FORGOT, fix)
        }
        WhyNot::Replica | WhyNot::NotMaster | WhyNot::Cluster => {
            ("its data is a copy of another server's", "use independent masters")
        }
        WhyNot::Denied => (UNTOLD, unread(not.step_error.as_deref().unwrap_or_default())),
        WhyNot::ScoreTooLarge => (NO_TOKEN, FOREIGN_CURE),
        WhyNot::NoBallots => (
            "it takes no part in locks with fencing tokens",
            "Redis 6.2 or newer, and +zadd +zscore for its user; or --plain, for clients that need \
             no tokens",
        ),
        WhyNot::ReportsNoLoss => (
            "a client without tokens would not notice that its data is gone",
            "use Redis 6.0 or newer without a proxy, and grant +client|tracking +client|caching; or no \
             --plain; or --quarantine off",
        ),
        WhyNot::UsedWithoutQuarantine => (
            "clients with and without a quarantine do not mix",
            "--quarantine off or REDLOCK_QUARANTINE=off for this client; or redlock init --again, \
             which converts the namespace, when the others are gone; or another --prefix",
        ),
        WhyNot::UsedWithQuarantine => (
            "clients with and without a quarantine do not mix",
            "--quarantine on for this client; or redlock init --again, which converts the \
             namespace, when the others are gone; or another --prefix",
        ),
        WhyNot::SetSize | WhyNot::SetsDiffer => (
            "with a wrong list of masters, two clients can hold the same lock, so this client \
             requests no new lock there",
            not.lists.as_deref().map_or("correct the list of masters", lists::fix),
        ),
        WhyNot::Loading => LOADING,
        _ => ("not voting at the moment", "run doctor again shortly"),
    }
}

/// What makes the record of a master readable.
fn unread(step_error: &str) -> &'static str {
    if step_error.contains("is malformed") {
        "find out who wrote it, and delete the key of the record (its name is the prefix and \
         redlock-quorum:1); that master then does not vote for 1.1 × max_ttl"
    } else if step_error.contains("of another type") {
        "find out who wrote it, and delete the key; that master then does not vote for \
         1.1 × max_ttl"
    } else {
        "give its user +info and +hgetall"
    }
}

pub(super) const MISTYPED: &str = "correct its address in the list, because the recorded set does \
    not contain it; if the address is right, check the server and the network";
const UNTOLD: &str = "it is unknown whether it lost data";
const MISSED: &str = "it does not vote, so fewer other masters can fail before locking stops";
const FORGOT: &str = "it may have lost a lock that is still held";
const LOADING: (&str, &str) = (
    "it is still loading its data, which may include its admission record; until then, for at \
        most one quarantine length, clients start no quarantine",
    "wait for it to finish loading, or shut it down",
);
pub(super) const NO_TOKEN: &str =
    "no valid fencing token can follow this score, so the master cannot vote on some locks";
pub(super) const FOREIGN_CURE: &str = "find out what writes to this key, delete this master's \
    ballot set before admitting another master, and wait for this master's quarantine to end";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_last_are_about_the_user_of_the_url() {
        let fix = |error: &str| of(&Cause::of_error_reply(error.into()), false, false).1;
        let wrong = "WRONGPASS invalid username-password pair";
        assert!(fix(wrong).contains("the password and the rights"));
        assert!(fix("NOPERM no permissions").contains("`redlock acl --check`"));
        for (passing, says) in [
            ("BUSY Redis is busy running a script.", "SCRIPT KILL"),
            ("LOADING Redis is loading the dataset in memory", "finish loading"),
            ("MISCONF Errors writing to the AOF file", "check the server"),
            ("OOM command not allowed", "check the server"),
        ] {
            let fix = fix(passing);
            assert!(fix.contains(says) && !fix.contains("password"), "{passing}: {fix}");
        }
    }

    #[test]
    fn rejected_certificate_is_not_about_the_port() {
        let cause = Cause::Unusable("TLS: no trusted CA has signed it".into());
        let fix = of(&cause, false, false).1;
        assert_eq!(fix, "check its certificate, --tls-ca, --tls-cert and --tls-key");
    }

    #[test]
    fn a_record_that_is_malformed_is_no_matter_of_rights() {
        let fix = |step_error: &str| {
            let mut not = NotAdmitted::new(WhyNot::Denied);
            not.step_error = Some(step_error.into());
            of(&Cause::NotAdmitted(not.into()), false, false).1
        };
        assert!(fix("the record has a field \"max_ttl\" that is malformed").contains("delete"));
        assert!(fix("the key of the record is of another type").contains("delete"));
        assert!(fix("the record cannot be read: error reply: NOPERM no").contains("+hgetall"));
    }

    #[test]
    fn what_hinders_a_quarantine_is_cured_before_it_is_waited_for() {
        let fix = |why, is_hindered| {
            of(&Cause::NotAdmitted(NotAdmitted::new(why).into()), is_hindered, false).1
        };
        for why in [WhyNot::New, WhyNot::Emptied, WhyNot::Restarted, WhyNot::Incomplete] {
            assert!(fix(why, false).contains("wait"), "{why:?}");
            assert!(
                fix(why, true).starts_with("fix this master's other findings first"),
                "{why:?}"
            );
        }
        assert_eq!(fix(WhyNot::Replica, true), "use independent masters");
    }

    /// Another master that was not read may show that the namespace is in use.
    #[test]
    fn init_is_advised_only_where_all_masters_may_be_new() {
        let new = Cause::NotAdmitted(NotAdmitted::new(WhyNot::New).into());
        assert!(of(&new, false, true).1.starts_with("if all masters are new, run `redlock init`"));
        assert!(of(&new, false, false).1.starts_with("wait; its quarantine"));
    }
}
