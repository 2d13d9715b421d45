//! The impact of a master that does not vote, and the fix.

use std::borrow::Cow;
use std::time::Duration;

use redlock_quorum::server_error::ServerError;
use redlock_quorum::{Cause, NotAdmitted, TlsFault, WhyNot};

use crate::duration::spelled;
use crate::lists::{self, LIST_ONCE};

/// Conditions of a fix, in addition to the cause.
#[derive(Clone, Copy)]
pub(super) struct Circumstances<'a> {
    /// Keys or rights of the master are wrong, so no quarantine can start or end there.
    pub(super) is_hindered: bool,
    /// All masters may be new.
    pub(super) may_be_new: bool,
    /// How long a master that lost its data does not vote.
    pub(super) quarantine: Duration,
    /// The key of its record.
    pub(super) record: &'a str,
}

/// Returns the impact and the fix.
pub(super) fn of(cause: &Cause, of: Circumstances<'_>) -> (&'static str, Cow<'static, str>) {
    let (impact, fix) = match cause {
        Cause::NotAdmitted(not) if not.why == WhyNot::BadRecord && !of.is_hindered => {
            return (UNTOLD, bad_record(of).into());
        }
        Cause::NotAdmitted(not) if !of.is_hindered && not.why.is_ended_by_quarantine() => {
            return (FORGOT, forgot(not, of).into());
        }
        Cause::NotAdmitted(not) if not.why.is_ended_by_quarantine() => {
            (FORGOT, "fix this master's other findings first; its quarantine cannot end until then")
        }
        // The finding about the right or the key has the only fix.
        Cause::NotAdmitted(not)
            if of.is_hindered && matches!(not.why, WhyNot::Denied | WhyNot::BadRecord) =>
        {
            (UNTOLD, "fix this master's other findings first")
        }
        Cause::NotAdmitted(not) if not.why.is_wrong_list() => {
            return (TWO_HOLDERS, wrong_list(not));
        }
        Cause::NotAdmitted(not) => not_admitted(not),
        Cause::TwinOf(_) => {
            ("this server is listed more than once, and only one address votes", LIST_ONCE)
        }
        Cause::ErrorReply(text) => error_reply(ServerError::of(text)),
        cause => (MISSED, unconnected(cause)),
    };
    (impact, fix.into())
}

/// Returns the fix for a missing connection.
fn unconnected(cause: &Cause) -> &'static str {
    match (cause, cause.tls()) {
        (_, Some(TlsFault::Required)) => {
            "if this port speaks TLS, use rediss://, or the port that does not; if it is a proxy, \
             use the address of the server itself; otherwise check the server and the network"
        }
        (_, Some(TlsFault::Rejected)) => {
            "use a certificate and key (--tls-cert, --tls-key) that the master accepts, or add \
             their CA to its tls-ca-cert-file"
        }
        // A certificate was rejected, so the port speaks TLS.
        (Cause::Unusable(_), Some(_)) => {
            "check its certificate, --tls-ca, --tls-cert and --tls-key"
        }
        (_, Some(_)) => {
            "if this port does not speak TLS, use redis://, or the port that does; otherwise check \
             its certificate, --tls-ca, --tls-cert and --tls-key"
        }
        // An answer shows that it is not a master.
        (Cause::Unusable(_), None) => "use the address of an independent master",
        (_, None) => "check the server and the network",
    }
}

fn bad_record(of: Circumstances<'_>) -> String {
    let (record, quarantine) = (of.record, spelled(of.quarantine));
    format!(
        "find out what wrote it, and delete the key {record}; that master then does not vote for \
         {quarantine} (1.1 × max_ttl)"
    )
}

/// Returns the fix for a master that may have lost a lock.
fn forgot(not: &NotAdmitted, of: Circumstances<'_>) -> String {
    if not.why == WhyNot::New && of.may_be_new {
        return "if all masters are new, run `redlock init`; otherwise wait for the quarantine, which \
                starts with the next lock request"
            .into();
    }
    let length = spelled(of.quarantine);
    if not.in_quarantine {
        return format!(
            "wait until its quarantine ends: at most {length} while a client stays connected, \
             otherwise within twice that if another master votes"
        );
    }
    format!(
        "wait: its quarantine starts with the next lock request, and ends after {length} if that \
         client stays connected, otherwise within twice that if another master votes"
    )
}

/// Errors that last come from who we are and what we may do. Others pass, or are the server's own.
fn error_reply(error: ServerError) -> (&'static str, &'static str) {
    match error {
        _ if error.lasts() => ("it does not vote", lasting(error)),
        ServerError::Busy => (
            "a running script blocks the server",
            "find out who runs it, and stop it with SCRIPT KILL",
        ),
        ServerError::Loading => LOADING,
        ServerError::TooManyClients => {
            (MISSED, "raise maxclients in its configuration, or close unused connections")
        }
        _ => (MISSED, "check the server: its error is above"),
    }
}

/// Returns the fix for an error that lasts.
fn lasting(error: ServerError) -> &'static str {
    match error {
        ServerError::NoLogIn => {
            "add a user and a password to its URL, or set REDLOCK_PASSWORD_FILE and, for a user \
             other than default, REDLOCK_USERNAME"
        }
        ServerError::WrongLogIn => {
            "correct the user and the password in its URL, or in REDLOCK_USERNAME and \
             REDLOCK_PASSWORD_FILE; if they are right, enable the user (ACL SETUSER USER on)"
        }
        ServerError::NoPasswordSet => {
            "remove the password from its URL or unset REDLOCK_PASSWORD_FILE, because its default \
             user has none; or set one with requirepass; or name the user that the password \
             belongs to"
        }
        ServerError::Protected => {
            "set a password for its default user (requirepass) and use it here; or, if only trusted \
             hosts reach the server, set protected-mode no"
        }
        ServerError::NoDatabase => {
            "use a smaller number of the database in its URL, the same for all masters and clients; \
             or raise `databases` in its configuration and restart it"
        }
        ServerError::Cluster => "use independent masters",
        ServerError::UnknownCommand => {
            "remove rename-command for this command from its configuration and restart it, or \
             upgrade it"
        }
        _ => "grant its user the missing rights, which `redlock acl --check` names",
    }
}

fn wrong_list(not: &NotAdmitted) -> Cow<'static, str> {
    not.lists.as_deref().map_or(Cow::Borrowed("correct the list of masters"), lists::fix)
}

fn not_admitted(not: &NotAdmitted) -> (&'static str, &'static str) {
    match not.why {
        WhyNot::Replica => ("its data comes from another server", "use independent masters"),
        WhyNot::Cluster => (
            "a cluster can fail over to replicas that lack the latest locks",
            "use independent masters",
        ),
        WhyNot::NotMaster => ("it is not a Redis master", "use independent masters"),
        WhyNot::Denied => (UNTOLD, "grant its user +info and +hgetall"),
        // Another finding names the ballots.
        WhyNot::ScoreTooLarge => (NO_TOKEN, "fix this master's other findings first"),
        WhyNot::NoBallots => (
            "it cannot vote on locks with fencing tokens",
            "use Redis 6.2 or newer, and grant its user +zadd +zscore; or use --plain for clients \
             without fencing tokens",
        ),
        WhyNot::ReportsNoLoss => (
            "a client without fencing tokens would not notice that its data is gone",
            "use Redis 6.0 or newer without a proxy, and grant +client|tracking +client|caching; or \
             drop --plain; or use --quarantine off",
        ),
        WhyNot::UsedWithoutQuarantine => (
            "clients with and without a quarantine cannot share a prefix",
            "use --quarantine off or REDLOCK_QUARANTINE=off for this client; or stop the other \
             clients and run `redlock init --again`, which converts the prefix; or use another \
             --prefix",
        ),
        WhyNot::UsedWithQuarantine => (
            "clients with and without a quarantine cannot share a prefix",
            "use --quarantine on for this client; or use another --prefix",
        ),
        WhyNot::Loading => LOADING,
        _ => ("not voting at the moment", "run doctor again shortly"),
    }
}

pub(super) const MISTYPED: &str = "correct its address in the list, because the recorded set does \
    not contain it; if the address is right, check the server and the network";
const TWO_HOLDERS: &str = "with a wrong list of masters, two clients can hold the same lock, so \
    this client requests no new lock there";
const UNTOLD: &str = "it is unknown whether it lost data";
const MISSED: &str = "it does not vote, so fewer other masters can fail before locking stops";
const FORGOT: &str = "it may have lost a lock, although the holder still relies on it";
const LOADING: (&str, &str) = (
    "it is still loading its data, which may include its admission record; until then, for at \
        most one quarantine length, clients start no quarantine",
    "wait for it to finish loading, or shut it down",
);
pub(super) const NO_TOKEN: &str =
    "no valid fencing token can follow this score, so the master cannot vote on some locks";

#[cfg(test)]
mod tests {
    use redlock_quorum::NoConnection;

    use super::*;

    const NONE: Circumstances<'_> = Circumstances {
        is_hindered: false,
        may_be_new: false,
        quarantine: Duration::from_secs(66),
        record: "p:redlock-quorum:1",
    };

    #[test]
    fn each_error_reply_has_its_own_fix() {
        let fix = |error: &str| of(&Cause::of_error_reply(error.into()), NONE).1;
        for (lasting, says) in [
            ("WRONGPASS invalid username-password pair", "correct the user and the password"),
            ("NOAUTH Authentication required.", "add a user and a password to its URL"),
            ("ERR AUTH <password> called without any password", "remove the password from its URL"),
            ("DENIED Redis is running in protected mode", "set protected-mode no"),
            ("ERR DB index is out of range", "use a smaller number of the database"),
            ("MOVED 1234 10.0.0.1:6379", "use independent masters"),
            ("NOPERM no permissions", "`redlock acl --check`"),
        ] {
            assert!(fix(lasting).contains(says), "{lasting}: {}", fix(lasting));
        }
        for (passing, says) in [
            ("BUSY Redis is busy running a script.", "SCRIPT KILL"),
            ("LOADING Redis is loading the dataset in memory", "finish loading"),
            ("ERR max number of clients reached", "raise maxclients"),
            ("MISCONF Errors writing to the AOF file", "check the server"),
            ("OOM command not allowed", "check the server"),
        ] {
            let fix = fix(passing);
            assert!(fix.contains(says) && !fix.contains("password"), "{passing}: {fix}");
        }
    }

    #[test]
    fn rejected_certificate_is_not_about_the_port() {
        let why = NoConnection::of_tls(TlsFault::Failed, "TLS: no trusted CA has signed it");
        let fix = of(&Cause::Unusable(why), NONE).1;
        assert_eq!(fix, "check its certificate, --tls-ca, --tls-cert and --tls-key");
    }

    #[test]
    fn invalid_record_is_deleted_and_unreadable_record_needs_rights() {
        let fix = |why| of(&Cause::NotAdmitted(NotAdmitted::new(why).into()), NONE).1;
        let delete = fix(WhyNot::BadRecord);
        assert!(
            delete.contains("delete the key p:redlock-quorum:1;")
                && delete.contains("vote for 1m6s"),
            "{delete}"
        );
        assert_eq!(fix(WhyNot::Denied), "grant its user +info and +hgetall");
    }

    #[test]
    fn impact_of_replicas_and_cluster_nodes_differs() {
        let impact = |why| of(&Cause::NotAdmitted(NotAdmitted::new(why).into()), NONE).0;
        assert_eq!(impact(WhyNot::Replica), "its data comes from another server");
        assert!(impact(WhyNot::Cluster).contains("fail over"));
    }

    #[test]
    fn obstacles_to_a_quarantine_are_fixed_before_waiting() {
        let fix = |why, is_hindered| {
            let of = Circumstances { is_hindered, ..NONE };
            super::of(&Cause::NotAdmitted(NotAdmitted::new(why).into()), of).1
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

    /// The record of an unread master may show that the prefix is in use.
    #[test]
    fn init_is_advised_only_if_all_masters_may_be_new() {
        let new = Cause::NotAdmitted(NotAdmitted::new(WhyNot::New).into());
        let may_be_new = Circumstances { may_be_new: true, ..NONE };
        assert!(of(&new, may_be_new).1.starts_with("if all masters are new, run `redlock init`"));
        assert!(of(&new, NONE).1.starts_with("wait: its quarantine"));
    }
}
