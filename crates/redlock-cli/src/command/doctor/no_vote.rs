//! Why a master does not vote, what that costs, and what cures it.

use redlock_quorum::server_error::ServerError;
use redlock_quorum::{Cause, NotAdmitted, WhyNot};

/// Why that matters, and the cure. `is_hindered`: keys or rights of the master are wrong, so that
/// no quarantine begins or ends there. `may_be_new`: all masters may be.
pub(super) fn of(
    cause: &Cause,
    is_hindered: bool,
    may_be_new: bool,
) -> (&'static str, &'static str) {
    match cause {
        Cause::TwinOf(_) => ("one server has one vote", "list each server once"),
        Cause::NotAdmitted(not) if is_hindered && not.why.is_ended_by_quarantine() => (
            FORGOT,
            "cure the other findings of this master first: until then its quarantine does not end",
        ),
        // The finding about the right or the key has the only fix.
        Cause::NotAdmitted(not) if is_hindered && not.why == WhyNot::Denied => {
            (UNTOLD, "fix the other findings of this master first")
        }
        Cause::NotAdmitted(not) => not_admitted(not, may_be_new),
        Cause::ErrorReply(text) => error_reply(text, cause.is_curable()),
        // The cause is text. What comes from TLS has the word in it, and the URL to write.
        Cause::NotConnected(words) | Cause::Unusable(words) if words.contains("rediss://") => (
            MISSED,
            "if this port speaks TLS, write rediss://, or give the port that does not; else \
             check the server and the network",
        ),
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
        _ if !passes => {
            ("it does not vote", "check the password and the rights of the user in its URL")
        }
        ServerError::Busy => (
            "a script is running there: until it ends, the server answers nothing else",
            "SCRIPT KILL ends it there; find out who runs it",
        ),
        ServerError::Loading => LOADING,
        _ => (MISSED, "check the server: its error is above"),
    }
}

fn not_admitted(not: &NotAdmitted, may_be_new: bool) -> (&'static str, &'static str) {
    match not.why {
        WhyNot::New if may_be_new => {
            let cure = "all brand new? run redlock init; else wait for the end of its quarantine, \
                        which begins when a client asks for a lock";
            (FORGOT, cure)
        }
        why if why.is_ended_by_quarantine() => {
            let cure = "wait; its quarantine begins when a client asks for a lock, and ends by a \
                        client that stays or by the clocks of two masters";
            (FORGOT, cure)
        }
        WhyNot::Replica | WhyNot::NotMaster | WhyNot::Cluster => {
            ("its data is a copy of another server's", "give independent masters")
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
            "Redis 6.0 or newer, without a proxy, and +client|tracking +client|caching; or no \
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
            "correct the list of this client; if the list is right, run redlock init, which shows \
             both lists",
        ),
        WhyNot::Loading => LOADING,
        _ => ("it does not vote now", "run doctor again in a moment"),
    }
}

/// What makes the record of a master readable.
fn unread(step_error: &str) -> &'static str {
    if step_error.contains("is malformed") {
        "find out who wrote it, and delete the key of the record (its name is the prefix and \
         redlock-quorum:1): its master is then in quarantine for D"
    } else if step_error.contains("of another type") {
        "find out who wrote it, and delete the key: its master is then in quarantine for D"
    } else {
        "give its user +info and +hgetall"
    }
}

const UNTOLD: &str = "it is unknown whether it lost data";
const MISSED: &str = "it does not vote, so fewer of the other masters may fail";
const FORGOT: &str = "it may have lost a lock that is still held";
const LOADING: (&str, &str) = (
    "it reads its data, and may have a record that cannot be read yet: others wait for it before \
     they begin a quarantine, for as long as one lasts",
    "wait until it has its data, or stop it",
);
pub(super) const NO_TOKEN: &str =
    "no fencing token can follow this score, so the master does not vote on some locks";
pub(super) const FOREIGN_CURE: &str = "find out who writes there, delete the ballot set of this \
                                       master before another one is admitted, and wait for its \
                                       quarantine";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_last_are_about_the_user_of_the_url() {
        let cure = |error: &str| of(&Cause::of_error_reply(error.into()), false, false).1;
        for lasting in ["WRONGPASS invalid username-password pair", "NOPERM no permissions"] {
            assert!(cure(lasting).contains("the password and the rights"), "{lasting}");
        }
        for (passing, says) in [
            ("BUSY Redis is busy running a script.", "SCRIPT KILL"),
            ("LOADING Redis is loading the dataset in memory", "until it has its data"),
            ("MISCONF Errors writing to the AOF file", "check the server"),
            ("OOM command not allowed", "check the server"),
        ] {
            let cure = cure(passing);
            assert!(cure.contains(says) && !cure.contains("password"), "{passing}: {cure}");
        }
    }

    #[test]
    fn a_record_that_is_malformed_is_no_matter_of_rights() {
        let cure = |step_error: &str| {
            let mut not = NotAdmitted::new(WhyNot::Denied);
            not.step_error = Some(step_error.into());
            of(&Cause::NotAdmitted(not.into()), false, false).1
        };
        assert!(cure("the record has a field \"max_ttl\" that is malformed").contains("delete"));
        assert!(cure("the key of the record is of another type").contains("delete"));
        assert!(cure("the record cannot be read: error reply: NOPERM no").contains("+hgetall"));
    }

    #[test]
    fn what_hinders_a_quarantine_is_cured_before_it_is_waited_for() {
        let cure = |why, is_hindered| {
            of(&Cause::NotAdmitted(NotAdmitted::new(why).into()), is_hindered, false).1
        };
        for why in [WhyNot::New, WhyNot::Emptied, WhyNot::Restarted, WhyNot::Incomplete] {
            assert!(cure(why, false).contains("wait"), "{why:?}");
            assert!(
                cure(why, true).starts_with("cure the other findings of this master first"),
                "{why:?}"
            );
        }
        assert_eq!(cure(WhyNot::Replica, true), "give independent masters");
    }

    /// Another master that was not read may show that the namespace is in use.
    #[test]
    fn init_is_advised_only_where_all_masters_may_be_new() {
        let new = Cause::NotAdmitted(NotAdmitted::new(WhyNot::New).into());
        assert!(of(&new, false, true).1.starts_with("all brand new? run redlock init"));
        assert!(of(&new, false, false).1.starts_with("wait; its quarantine"));
    }
}
