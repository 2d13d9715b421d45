//! What `--help` says beyond the options: examples, exit codes, and what to know.

pub(crate) const SHORT: &str = "\
Examples:
  redlock run backup --once-in 12h --wait 2h -- /usr/local/bin/backup --full   # one host runs it
  redlock run deploy --wait forever --ttl 10s -- make deploy
  redlock status deploy

`redlock --help` has exit codes and environment; `redlock run --help` has all about run.";

pub(crate) const LONG: &str = "\
Examples:
  Five masters, named once:
    export REDLOCK_NODES=redis://m1,redis://m2,redis://m3,redis://m4,redis://m5

  A cron job that many hosts start and one runs, once in 12 hours; the others leave quietly:
    redlock run nightly-report --once-in 12h --wait 2h -q -E 0 -- /usr/local/bin/report

  One deployment at a time, in the order in which they came, and never two:
    redlock run deploy --wait forever -- make deploy

  A lock over several steps of a script:
    line=$(redlock acquire build --ttl 60s) || exit
    token=${line%% *}
    redlock extend build \"$token\" --ttl 60s
    redlock release build \"$token\"

  Who holds it? And what is held at all?
    redlock status deploy
    redlock status

  A lock that is stuck, because its holder is gone and it does not expire:
    redlock release --force deploy

  What packages install:
    redlock generate completions bash > /usr/share/bash-completion/completions/redlock
    redlock generate man > /usr/share/man/man1/redlock.1

  Masters that are brand-new; and what is wrong with masters:
    redlock init
    redlock doctor

  Masters to play with, in another terminal:
    redlock dev

Exit codes:
  0    done, or done before (`run --once-in`, `--fire`); `status`: one token holds a majority
  1    the lock was not ours (`extend`, `release`); `status`: a majority is free;
       `doctor`: findings; `init`, `release --force`: the question was answered with no
  64   wrong usage or bad input
  69   no quorum: too few voting masters answered; `status`: undecided
  74   the result cannot be printed
  75   held by another until the wait ran out (-E changes it)
  79   the lock was lost while the command ran
  126  `run`: the command cannot be run
  127  `run`: the command is not found
  `run` ends with the code of its command, or 128 + the signal that ended it.
  Whenever the code is not that of the command, one line on stderr that starts with
  `redlock:` has the cause and what each master answered. There is none with `-E 0` or `-q`
  when another holds the lock. With `-q`, a `run` that exits with 0 or with the code of -E
  prints nothing itself. Lines that start with `note:` are for people.

Environment:
  REDLOCK_NODES         the masters, separated by commas
  REDLOCK_NODES_FILE    a file with one master on each line; a line that begins with # is a
                        comment
  REDLOCK_NODE_TIMEOUT, REDLOCK_PREFIX, REDLOCK_MAX_TTL, REDLOCK_QUARANTINE,
  REDLOCK_LABEL, REDLOCK_TLS_CA, REDLOCK_TLS_CERT, REDLOCK_TLS_KEY
                        as the options; --node wins over REDLOCK_NODES, and that over the file
  REDLOCK_PLAIN         1 for --plain, 0 for none
  REDLOCK_QUEUE         off for --no-queue, on for none
  A variable that is empty counts as unset.

What masters answer:
  granted, held (and its TTL), free, not ours, pending (it was not waited for),
  granted but ballot refused, because that master had accepted a larger one; the lock is given
  up, no client has it, and the next attempt uses a larger ballot. And why it is not known:
  timed out             it was not connected within 1s, or did not answer within the node
                        timeout: --node-timeout
  connection refused    nothing listens there
  connection closed     the connection broke with the request on its way
  not connected: ...    such as a name that is not found, or a certificate: --tls-ca;
                        `still connecting` when a majority was connected sooner
  error reply: ...      such as a wrong password, or a user without rights
  not admitted: ...     a replica or a cluster node, which may not vote; a master that takes no
                        ballots: --plain; with --plain, one that cannot report a loss of data:
                        --quarantine off; or one that may have lost a lock, and when it
                        votes again if a client stays, and if clients come and go:
                        --quarantine
  duplicate address ... the same server as another one

Objects of --json:
  `key` is KEY itself if it is UTF-8. Otherwise `key` is null and `key_encoded` has it
  percent-encoded, as in REDLOCK_HELD.

Durations:
  500ms, 10s, 1.5m, 1h30m, 2d; a bare number is seconds.

What it does not promise:
  A lock can end before its holder notices: when clocks jump, when masters evict keys,
  or when a whole machine stands still and goes on later. In all other cases redlock's own clock
  stops the command in time, also when redlock itself is stopped.";

pub(crate) const RUN_USAGE: &str = "redlock run [OPTIONS] KEY... -- COMMAND [ARG]...
       redlock run [OPTIONS] KEY... -c 'SHELL TEXT'
       redlock run [OPTIONS] -- KEY... -- COMMAND [ARG]...   if a KEY begins with -";

pub(crate) const RELEASE_USAGE: &str = "redlock release [OPTIONS] KEY TOKEN
       redlock release [OPTIONS] --force [--mark] [--yes] KEY";

pub(crate) const RUN: &str = "\
The command:
  gets REDLOCK_KEY, REDLOCK_TOKEN and REDLOCK_FENCING_TOKEN (which is not set with --plain), and no
  URL of a master, unless --pass-nodes is given. REDLOCK_HELD names the locks of all `redlock run`s
  around it, and its own: KEY, percent-encoded, `=`, TOKEN, separated by spaces;
  REDLOCK_HELD_FENCING_TOKENS their fencing tokens in the same order, `-` where there is none. A
  command that asks for one of these locks would wait for itself: it ends at once with 75,
  unless it is `redlock run --reentrant`.
  It runs in a process group of its own, which is in the foreground where there is a terminal. INT,
  TERM, HUP, QUIT, USR1 and USR2 are passed on to the group, a second TERM within half a second is
  not. Ctrl-Z stops the whole job, and the lock is then not extended: the command is killed before
  the lock ends.

What ends the lock:
  the end of the command. What it leaves in the background goes on without the lock, and a note
  says how many processes of its group do. --wait-group keeps the lock until they have ended, too;
  the exit code stays that of the command. With --keep a success leaves the lock to expire.

When the lock is lost:
  it is extended at a third of the TTL. When that fails until no more than
  --kill-after is left (or a third of the TTL), the group gets SIGTERM, and SIGKILL before the
  lock ends. When masters say that the lock is gone, it gets SIGKILL at once. Then redlock
  waits for the command and ends with 79. A second process, `redlock __watchdog`, kills the
  group in time when redlock is stopped, and at once when redlock is killed; the command itself
  dies with redlock in any case (on Linux). Processes that
  have left the group (setsid, a daemon, su -c with a session of its own) keep running, and no line
  names them. A command that changes its user, as sudo and su do, can be killed only by root, and
  does not die with redlock: a note says so immediately if SIGKILL fails.

Work that many hosts start, and that is to be done once:
  --once-in D does nothing where a run that was completed began less than D ago, by the masters'
  clocks: choose it shorter than the time between two runs. A fire is one planned run of the job:
  the time for which it is planned, or a number that grows, the same on all hosts. --fire TIME does
  nothing where this fire, or a later one, was completed. The code is then 0, and one line says who
  did it and when; -q leaves it out. A time of RFC 3339 or of `date -R` more than one day ahead
  of the masters' clocks is refused without --far-fire, because its mark would stop the job.
  A command that fails, or whose lock was lost, leaves no mark; --mark-failures counts a failure.
  --wait should be longer than the TTL and the work: a host that waits does the work when the one
  that did it dies. Without it all others have gone after 10s.
  It never runs twice at a time. It may run twice, one after the other: when masters lose their
  data and the others are out of reach or slow, or when a host dies between the work and its mark.
  Where no majority takes the mark a note says so, and the lock is left to expire. Marks are kept
  for 32 days, or twice the period.

Several keys:
  are locked together, all or none, in one round trip where all are free: 64 at most. Commands
  whose sets overlap never block each other for ever, whatever the order of the keys. The variables
  have one line for each key then, in the order of the arguments. One lock that is lost ends the
  command.

With --reentrant, below a `redlock run` that has the lock:
  the masters are asked whether they still have its token, and nothing is written. The command gets
  the same REDLOCK_KEY, REDLOCK_TOKEN and REDLOCK_FENCING_TOKEN, and runs in the process group that
  the `redlock run` around it ends when the lock is lost; that one extends the lock and releases it.
  --ttl, --max-hold, --kill-after, --keep and --wait-group are those of the one around it. In
  another process group (setsid, a shell with job control), as a user whom that one may not end, or
  when that one or its command has ended, it is refused with 75. That is looked at when it begins:
  what goes on in the background when the command around it has ended goes on without the lock,
  unless that one has --wait-group. Where no lock around it is on KEY, the lock is taken as ever. It
  needs /proc, as --wait-group does.

Examples:
  redlock run migrate --wait forever --max-hold 1h -- ./migrate
  redlock run deploy --ttl 10s --kill-after 2s -- make deploy
  redlock run report --ttl 60s --once-in 12h --wait 2h -E 0 -- report
  redlock run account:1 account:2 -- ./transfer
  redlock run counter -c 'n=$(cat n); echo $((n + 1)) > n'

Exit codes: the command's, or 128 + signal; 64 usage, 69 no quorum, 75 held by another,
  79 lost, 126 cannot be run, 127 not found.";

pub(crate) const ACQUIRE: &str = "\
Nothing extends the lock after that: it ends after its TTL, unless it is extended or released with
the token. VALIDITY_MS is what is left of it. FENCING_TOKEN is larger than that of every lock on KEY
before: a store that keeps the largest one it has seen and refuses smaller ones never accepts a late
write. `-` stands there with --plain. When the line cannot be printed, or stdout is closed, the lock
is released.

A wait ends at once when so many masters answer what waiting does not cure (a wrong password, no
rights, a replica) that no quorum is left. On a terminal, or with -v, one line after a second says
what is waited for and who holds it.

Example, in any shell; when the lock is not acquired it ends with the code of redlock:
  line=$(redlock acquire build --ttl 60s) || exit
  set -- $line
  token=$1 fence=$2 validity_ms=$3

Exit codes: 0 acquired, 64 usage, 69 no quorum, 74 cannot print, 75 held by another.";

pub(crate) const EXTEND: &str = "\
The lock then lasts at least the TTL from now; it is never shortened. A lock that has ended is
not revived. FENCING_TOKEN is a new one, larger than all before; `-` stands there with --plain.
The smaller token of the same lock is good until a store has seen the new one: hand the new one
to the process that writes then. A holder that is still there shares the lock with the caller of
this command, and a release by either ends it for both: extend a lock of your own, never one
whose TOKEN was read from `redlock status`.

Example:
  redlock extend build \"$token\" --ttl 60s

Exit codes: 0 extended, 1 not ours, 64 usage, 69 no quorum, 74 cannot print.";

pub(crate) const RELEASE: &str = "\
By token, only the lock with this token is released, never another's.

By force, the key is deleted on all masters, no matter who holds it, and nothing checks that
the holder is gone. A holder that still works loses the lock: it notices at its next extension,
after a third of its TTL as a rule, and works beside the next holder until then. Look at `status`
first; a lock whose holder has died ends by itself unless it never expires. What is deleted is said
before, and asked about on a terminal; elsewhere --yes is needed. A lock that was acquired meanwhile
and a key of another type are left alone.

With --mark it is not the lock that is deleted, but the mark of what was completed under this name:
of a fire in milliseconds, or of a clock that was ahead. The work is done again when somebody asks.

Examples:
  redlock release build \"$token\"
  redlock release --force build
  redlock release --force --mark report

Exit codes: 0 released, 1 not ours, or nothing to delete, 64 usage, 69 not confirmed by a quorum,
  74 cannot print.";

pub(crate) const STATUS: &str = "\
A snapshot, taken from the masters one by one. By the time it is read the answer may be another:
to be sure of a lock, hold it. Since when it is held stands in its token, by the clock of the host
that took it; tokens of other clients do not say it. The fencing token is not on the masters.

With a key, the last run that was completed under it (`run --once-in`, `--fire`) is shown, too.

Without a key, the locks under the prefix are listed that one token holds on a majority of the
masters: strings that expire and whose value is a token (a UUID with a label, or 16 to 128 letters
and digits of another client). A text that never expires is listed, too, where a majority of the
masters has the same one: it keeps everybody from its lock. redlock leaves no such key, and nothing
says who made it; `redlock release --force KEY` deletes it.

The masters are searched with SCAN, and 10000 keys are looked at; give --prefix where they
hold other data, too. What was completed is listed behind the locks.

Exit codes: 0 one token holds a majority, or the list is complete or cut; 1 a majority is free;
  64 usage; 69 undecided, or no quorum answers; 74 cannot print.";

pub(crate) const INIT: &str = "\
A master that restarts, is flushed or was a replica for a while may have lost a lock. Its votes
do not count for 1.1 times --max-ttl. A brand-new master looks the same, and waits as
well, unless a person says that it is new.

By init you state that none of these masters has restarted, been flushed or replaced within the
last 1.1 times --max-ttl, or that no lock is alive on them. Where that is not so, two may hold one
lock. The masters, their runs and how long they have been up are shown, and you are asked on a
terminal; elsewhere --yes is needed.

It waits 3s for all masters, and for one that loads its data no longer than 1.1 times --max-ttl. A
second call changes nothing. Where it cannot read the record of every master, and where the
namespace was in use and a master may have lost data, it is refused unless --again is given: so a
start script ends no quarantine, unless the records of all masters are gone. With --again a
majority must answer. A --floor more than a minute ahead of the masters' clocks needs --far-floor:
where all masters come back empty, give one again, larger than every token seen. --max-ttl D raises
the largest TTL; --again --max-ttl D sets a smaller one, too, where all masters answer.

Examples:
  redlock init
  redlock init --yes          # in a script that has just started the masters
  redlock init --max-ttl 10m  # TTLs of up to ten minutes

Exit codes: 0 a majority votes, 1 not agreed to, 64 usage or refused, 69 no quorum
  or another init was at work, 74 cannot print.";

pub(crate) const DOCTOR: &str = "\
Each finding says what is wrong, why that matters and what cures it. Nothing is written. It sees
what masters tell: who votes and why not, clocks that are far apart, several masters on one host,
masters that report no changes of keys or evict keys, rights that are missing; without --plain also
masters that take no ballots, and ballots that another program has written; keys of another type in
the place of queues; and marks of the future, which keep work from being done once.

A problem of several masters is named once, with all of them, and what it follows from stands before
it; --json has a finding for each master.

States:
  admitted     it votes
  quarantine   it may have lost a lock, so it does not vote until all locks from before have ended
  none         it is not admitted, and no quarantine has begun: it is brand-new, it restarted, or
               it can't be admitted; its finding says which
  refused      it was reached, and did not let this user in, or replied with another error
  unreachable  it was not reached

Exit codes: 0 nothing was found, 1 findings, 64 usage, 74 cannot print.";

pub(crate) const DEV: &str = "\
They are servers from the redis-server (or valkey-server) on PATH, listen on 127.0.0.1 alone,
keep nothing, and are admitted for --prefix and --max-ttl. When all answer, a line
REDLOCK_NODES=url,url,... is printed; copy it into another terminal behind `export`. They end with
this command, which says when one ends by itself and ends when none is left.

Examples:
  redlock dev
  redlock dev --nodes 3 --port 7101

Exit codes: 0 stopped, 64 usage, 69 they cannot be started.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_too_long_for_a_terminal() {
        // Longer ones are folded at the width of help, and leave half a line behind.
        const WIDTH: usize = 100;
        for text in [SHORT, LONG, RUN, ACQUIRE, EXTEND, RELEASE, STATUS, INIT, DOCTOR, DEV] {
            for line in text.lines() {
                assert!(line.len() <= WIDTH, "{line}");
            }
        }
    }
}
