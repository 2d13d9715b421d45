//! Findings about keys. Each names its keys, the first of them if there are many.

use std::borrow::Cow;
use std::time::Duration;

use super::finding::{Finding, Rank};
use super::no_vote::NO_TOKEN;
use super::probe::Probe;
use crate::dashes::quoted;
use crate::duration::spelled;

/// How many keys a finding names. `doctor --json` lists all of them.
const NAMED_MAX: usize = 3;

pub(super) fn of_probe(probe: &Probe, quarantine: Option<Duration>) -> Vec<Finding> {
    let own = probe.foreign_keys.iter().map(|key| foreign_key(key, quarantine));
    let expiring = probe.expiring_keys.iter().map(|(key, left)| expiring(key, *left, quarantine));
    let of_many = [
        foreign_scores(probe),
        future_marks(&probe.future_marks),
        foreign_queues(&probe.foreign_queues),
        foreign_locks(probe),
        stuck(&probe.stuck_reservations, "a reservation without an expiry", RESERVED, probe),
        stuck(&probe.stuck_locks, "a lock without an expiry", STUCK, probe),
    ];
    own.chain(expiring).chain(of_many.into_iter().flatten()).collect()
}

/// Names the first of these, and counts the others.
fn few(names: &[String]) -> String {
    let named = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => named,
        1 => format!("{named} and 1 other"),
        others => format!("{named} and {others} others"),
    }
}

/// Returns the fix for one key or for several.
fn delete(keys: &[String]) -> String {
    match keys {
        [key] => format!("delete the key {key}"),
        keys if keys.len() > NAMED_MAX => {
            "delete these keys; `redlock doctor --json` lists all of them".into()
        }
        keys => format!("delete the keys {}", keys.join(", ")),
    }
}

fn foreign_scores(probe: &Probe) -> Option<Finding> {
    let one = probe.foreign_scores.first()?;
    let (count, set) = (probe.foreign_scores.len(), &probe.ballots);
    let what =
        format!("{count} of its ballots in {set} were not written by redlock, for example {one}");
    let fix = format!(
        "find out what writes to this key, delete this master's ballot set {set} before admitting \
         another master, and wait for this master's quarantine to end"
    );
    Some(Finding::error(what, NO_TOKEN, fix).ranked(Rank::Hindrance))
}

fn future_marks(marks: &[String]) -> Option<Finding> {
    let what = match marks {
        [] => return None,
        [mark] => format!("has an invalid completion mark: {mark}"),
        marks => format!("has {} invalid completion marks: {}", marks.len(), few(marks)),
    };
    let impact = "a clock was ahead when the mark was written, --fire was not in seconds, or another \
        program wrote it; until the mark is removed, the job runs every time or never";
    let fix = "run `redlock release --force --mark NAME`, which removes it from all masters; delete \
        a key without a NAME yourself";
    Some(Finding::warning(what, impact, fix))
}

fn foreign_queues(keys: &[String]) -> Option<Finding> {
    let what = match keys {
        [] => return None,
        [key] => format!("its key {key} has the wrong type, so no client can queue there"),
        keys => {
            let (count, few) = (keys.len(), few(keys));
            format!("{count} of its keys have the wrong type, so no client can queue there: {few}")
        }
    };
    let impact = "clients of this lock queue at another master, or wait without a queue and in no \
        particular order";
    Some(Finding::warning(what, impact, delete(keys)))
}

/// With an empty prefix, keys of other programs are a common sight.
fn foreign_locks(probe: &Probe) -> Option<Finding> {
    let keys = &probe.foreign_locks;
    let what = match &keys[..] {
        [] => return None,
        [key] => format!("its key {key} is not a lock, because it has another type"),
        keys => format!("{} of its keys are not locks: {}", keys.len(), few(keys)),
    };
    let impact = "a lock with the name of such a key is not granted there";
    Some(match !probe.prefix.is_empty() {
        true => Finding::warning(what, impact, delete(keys)),
        false => {
            let fix = "choose a separate --prefix for the locks, or use other names for them";
            Finding::info(what, impact, fix)
        }
    })
}

const RESERVED: &str = "the next client in the queue was to get the lock within a second; while the \
    key exists, this master grants the lock to no other client";
const STUCK: &str = "redlock did not create it, or another program removed its expiry; while the key \
    exists, this master grants the lock to no client";

fn stuck(keys: &[String], is: &str, impact: &'static str, probe: &Probe) -> Option<Finding> {
    let (what, fix): (_, Cow<'static, str>) = match keys {
        [] => return None,
        [key] => {
            let name = quoted(key.strip_prefix(&probe.prefix).unwrap_or(key).as_ref());
            let fix = format!("if no client holds the lock, run `redlock release --force {name}`");
            (format!("its key {key} is {is}"), fix.into())
        }
        keys => {
            let what = format!("{} of its keys are each {is}: {}", keys.len(), few(keys));
            let fix = "if no client holds these locks, run `redlock release --force KEY` for each; \
                `redlock doctor --json` lists them";
            (what, fix.into())
        }
    };
    Some(Finding::warning(what, impact, fix))
}

fn expiring(key: &str, left: Duration, quarantine: Option<Duration>) -> Finding {
    let what = format!("its key {key} expires in {}", spelled(left));
    let then = quarantine.map(spelled).unwrap_or_default();
    let impact = match quarantine {
        Some(_) => format!(
            "redlock stores its own data there; without it, the master does not vote for {then} \
             (1.1 × max_ttl)"
        ),
        None => "redlock stores its own data there; without it, fencing tokens may repeat".into(),
    };
    let fix = format!("find out what set the expiry, and run: PERSIST {key}");
    Finding::error(what, impact, fix)
}

fn foreign_key(key: &str, quarantine: Option<Duration>) -> Finding {
    let what = format!("its key {key} has the wrong type, so redlock does not write to it");
    if quarantine.is_some() && key.ends_with(":ballots") {
        let impact = "clients with a quarantine do not use it, but no quarantine can start or finish \
            while it exists";
        return Finding::warning(what, impact, format!("delete the key {key}"))
            .ranked(Rank::Hindrance);
    }
    let impact = "redlock stores its own data under this name; until the key is deleted, the master \
        cannot be admitted again";
    let then = quarantine.map(|quarantine| {
        format!("; that master then does not vote for {} (1.1 × max_ttl)", spelled(quarantine))
    });
    let fix = format!("delete the key {key}{}", then.unwrap_or_default());
    Finding::error(what, impact, fix).ranked(Rank::Hindrance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_keys_are_one_finding_with_the_first_names() {
        let keys: Vec<String> = (0..6_000).map(|number| format!("k{number}")).collect();
        let probe = Probe {
            foreign_queues: keys.clone(),
            future_marks: keys.clone(),
            foreign_locks: keys.clone(),
            stuck_reservations: keys.clone(),
            stuck_locks: keys[..4].to_vec(),
            prefix: "k".into(),
            ..Probe::default()
        };
        let found = of_probe(&probe, None);
        assert_eq!(found.len(), 5);
        for one in &found[..4] {
            assert!(one.what.ends_with(": k0, k1, k2 and 5997 others"), "{}", one.what);
        }
        assert!(found[4].what.ends_with(": k0, k1, k2 and 1 other"), "{}", found[4].what);
    }
}
