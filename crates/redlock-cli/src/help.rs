//! The parts of `--help` that follow the options: examples, exit codes and explanations.

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

  A cron job that many hosts start and one runs, once in 12 hours; the others exit quietly:
    redlock run nightly-report --once-in 12h --wait 2h -q -E 0 -- /usr/local/bin/report

  One deployment at a time, in order of arrival:
    redlock run deploy --wait forever -- make deploy

  A lock over several steps of a script:
    line=$(redlock acquire build --ttl 60s) || exit
    token=${line%% *}
    redlock extend build \"$token\" --ttl 60s
    redlock release build \"$token\"

  Show who holds a lock, and list all held locks:
    redlock status deploy
    redlock status

  Delete a stuck lock whose holder is gone and that does not expire:
    redlock release --force deploy

  Install completions and the man page:
    redlock generate completions bash > /usr/share/bash-completion/completions/redlock
    redlock generate man > /usr/share/man/man1/redlock.1

  Let new masters vote, and check the masters:
    redlock init
    redlock doctor

  Start local masters for testing, in another terminal:
    redlock dev

Exit codes:
  0    success, or already completed (`run --once-in`, `--fire`); `status`: the lock is held
  1    the lock was not held by this token (`extend`, `release`); `status`: the lock is free;
       `doctor`: errors or warnings; `acl --check`: a right is missing;
       `init`, `release --force`: not confirmed
  64   wrong usage or bad input
  69   no quorum: too few voting masters answered; `status`: undecided
  74   the result cannot be printed
  75   another client held the lock until the wait ran out (-E changes this code)
  79   the lock was lost while the command ran
  126  `run`: the command cannot be run
  127  `run`: the command is not found
  `run` exits with the code of its command, or 128 + the signal that killed it.
  For any other code, one line on stderr starts with `redlock:` and has the cause and the
  masters' answers. It is omitted with `-E 0` or `-q` if another client holds the lock. With
  `-q`, a `run` that exits with 0 or with the code of -E prints nothing itself. Lines that start
  with `note:` are informational; don't parse them.

Environment:
  REDLOCK_NODES         the masters, separated by commas
  REDLOCK_NODES_FILE    a file with one master per line; lines that begin with # are comments
  REDLOCK_USERNAME, REDLOCK_PASSWORD_FILE
                        the user, and a file with its password that is read for each connection,
                        for masters whose URLs have no credentials
  REDLOCK_NODE_TIMEOUT, REDLOCK_PREFIX, REDLOCK_MAX_TTL, REDLOCK_QUARANTINE,
  REDLOCK_LABEL, REDLOCK_TLS_CA, REDLOCK_TLS_CERT, REDLOCK_TLS_KEY
                        the same as the options; --node overrides REDLOCK_NODES, which overrides
                        REDLOCK_NODES_FILE
  REDLOCK_PLAIN         1 for --plain, 0 for the default
  REDLOCK_QUEUE         off for --no-queue, on for the default
  REDLOCK_CONFIG        the configuration file [default: /etc/redlock/config]
  Empty variables are ignored.

Configuration file:
  /etc/redlock/config, or the file that REDLOCK_CONFIG names, has the settings that neither
  options nor variables set. A line is NAME=VALUE with one of the variables above, without quotes or
  expansion. Blank lines and lines that begin with # are skipped. If --node or a variable names
  masters, the masters in the file are ignored. `redlock doctor` prints the source of each value.
  `redlock dev` reads no file.

Answers of the masters:
  Equal answers are shown once, for example `5 masters: timed out`; -v shows each master's answer.
  granted, held (with its TTL), free, not ours, pending (no answer was needed), or
  granted but ballot refused: that master had accepted a larger ballot. No client gets the lock,
  and the next attempt uses a larger ballot. If the answer is not known, the reason follows:
  timed out             not connected within 1s, or no answer within the node timeout
                        (--node-timeout)
  connection refused    nothing listens there
  connection closed     the connection broke while the request was under way
  not connected: ...    for example an unknown host name, or a certificate (--tls-ca);
                        `still connecting` if a majority was connected earlier
  error reply: ...      for example a wrong password, or missing rights
  not admitted: ...     a replica or a cluster node, which is not allowed to vote; a master
                        without fencing-token support (--plain); with --plain, a master that
                        cannot report data loss (--quarantine off); or a master that may have
                        lost a lock, with the time at which it votes again (--quarantine)
  duplicate address ... a second address of a server in the list

JSON objects:
  `key` is KEY itself if it is UTF-8. Otherwise `key` is null, and `key_encoded` has KEY
  percent-encoded, as in REDLOCK_HELD.

Durations:
  500ms, 10s, 1.5m, 1h30m, 2d; a bare number is seconds.

Limits:
  A lock can end before its holder notices: if clocks jump, if masters evict keys, or if a whole
  machine is suspended and resumed. In all other cases, redlock's own clock stops the command in
  time, even if redlock itself is stopped.";

pub(crate) const RUN_USAGE: &str = "redlock run [OPTIONS] KEY... -- COMMAND [ARG]...
       redlock run [OPTIONS] KEY... -c 'SHELL TEXT'
       redlock run [OPTIONS] -- KEY... -- COMMAND [ARG]...   if a KEY begins with -";

pub(crate) const RELEASE_USAGE: &str = "redlock release [OPTIONS] KEY TOKEN
       redlock release [OPTIONS] --force [--mark] [--yes] KEY";

pub(crate) const RUN: &str = "\
The command:
  Its environment has REDLOCK_KEY, REDLOCK_TOKEN and REDLOCK_FENCING_TOKEN (not with --plain), and
  no URL of a master, unless you use --pass-nodes. REDLOCK_HELD lists the locks of this and all
  enclosing `redlock run`s as KEY=TOKEN, separated by spaces, with a percent-encoded KEY.
  REDLOCK_HELD_FENCING_TOKENS lists their fencing tokens in the same order, `-` if there is none. A
  command that requests one of these locks would wait for itself, so it exits immediately with 75,
  unless it is `redlock run --reentrant`.
  It runs in its own process group, in the foreground if there is a terminal. INT, TERM, HUP, QUIT,
  USR1 and USR2 are passed on to the group, except for a second TERM within half a second. Ctrl-Z
  stops the whole job. The lock is then not extended, and the command is killed before the lock
  ends.

End of the lock:
  The lock is released when the command exits. Its background processes keep running without the
  lock, and a note shows how many processes of its group do. --wait-group holds the lock until they
  have exited; the exit code is still the command's. With --keep, the lock is left to expire if the
  command succeeds.

Loss of the lock:
  The lock is extended at a third of the TTL. If no extension succeeds, the group gets SIGTERM when
  only --kill-after is left (at most a third of the TTL), and SIGKILL before the lock ends. If
  masters report that the lock is gone, it gets SIGKILL immediately. redlock then waits for the
  command and exits with 79. A second process, `redlock __watchdog`, kills the group in time if
  redlock is stopped, and immediately if redlock is killed. On Linux, the command itself also dies
  with redlock. Processes that have left the group (setsid, a daemon, su -c with a new session) keep
  running, and no line names them. A command that changes its user, as sudo and su do, can be killed
  only by root, and does not die with redlock. If SIGKILL fails, a note shows that immediately.

Jobs that many hosts start and one runs:
  --once-in D skips the command if a completed run started less than D ago, by the masters' clocks.
  Use less than the schedule interval. --fire TIME skips the command if this scheduled run, or a
  later one, was completed. TIME is the planned time of the run, or a growing number, the same on
  all hosts. The exit code is then 0, and one line shows who ran it and when; -q omits the line. A
  time of RFC 3339 or of `date -R` more than one day ahead of the masters' clocks is rejected
  without --far-fire, because its completion mark would stop the job.
  A command that fails, or whose lock was lost, leaves no mark. --mark-failures records failures as
  completed.
  Make --wait longer than the TTL and the work together, so that a waiting host repeats the work if
  the working host dies. By default, all other hosts have exited after 10s.
  The command never runs twice at the same time. It may run twice, one after the other, if masters
  lose their data and the others are unreachable or slow, or if a host dies between the work and its
  mark. If no majority accepts the mark, a note shows that, and the lock is left to expire. Marks
  are kept for 32 days, or twice the period.

Several keys:
  At most 64 keys are locked together, all or nothing, in one round trip if all are free. Commands
  whose keys overlap never block each other forever, whatever their order. The variables then have
  one line per key, in the order of the arguments. If one lock is lost, the command is stopped.

Permits:
  --permits N takes one of the locks KEY#0 to KEY#(N-1), called slots, so that at most N commands
  run at a time. REDLOCK_KEY is the lock, for example KEY#1, and REDLOCK_SLOT is its number, 1. If
  the first one is held, the command waits for the lock KEY#gate, whose holder gets the next free
  slot, so commands are served in order of arrival. Use the same N on all hosts: the larger one
  applies. Don't compare the fencing tokens of different slots. The exit code is 75 if no slot
  becomes free during the wait.

With --reentrant, inside a `redlock run` that holds the lock:
  The masters are queried for its token, and nothing is written. The command gets the same
  REDLOCK_KEY, REDLOCK_TOKEN and REDLOCK_FENCING_TOKEN, and runs in the process group that the outer
  `redlock run` kills if the lock is lost. The outer one extends and releases the lock, and its
  --ttl, --max-hold, --kill-after, --keep and --wait-group apply. The inner one exits with 75 in
  another process group (setsid, a shell with job control), as a user that the outer one cannot
  kill, or if the outer one or its command has exited. This is checked at its start. A background
  process that outlives the outer command runs without the lock, unless the outer one has
  --wait-group. If no enclosing `redlock run` holds KEY, the lock is acquired as usual. It needs
  /proc, as --wait-group does.

Examples:
  redlock run migrate --wait forever --max-hold 1h -- ./migrate
  redlock run deploy --ttl 10s --kill-after 2s -- make deploy
  redlock run report --ttl 60s --once-in 12h --wait 2h -E 0 -- report
  redlock run account:1 account:2 -- ./transfer
  redlock run backups --permits 3 --wait 1h -- ./backup
  redlock run scheduler --wait forever -- ./leader   # the next host leads when it exits
  redlock run counter -c 'n=$(cat n); echo $((n + 1)) > n'

Exit codes: the command's, or 128 + signal; 64 usage, 69 no quorum, 75 another client holds the
  lock, 79 lost, 126 cannot be run, 127 not found.";

pub(crate) const ACQUIRE: &str = "\
The lock is not extended. It expires after its TTL, unless you extend or release it with the token.
VALIDITY_MS is its remaining validity. FENCING_TOKEN is larger than the tokens of all previous locks
on KEY. A store that keeps the largest token it has seen and rejects smaller ones never accepts a
late write. With --plain, this field is `-`. If the line cannot be printed, or stdout is closed, the
lock is released.

The wait ends early if so many masters report a fault that waiting does not fix (a wrong password,
missing rights, a replica) that no quorum is possible. On a terminal, or with -v, one line after a
second shows the key and its holder.

Example, in any shell; if the lock is not acquired, it exits with the code of redlock:
  line=$(redlock acquire build --ttl 60s) || exit
  set -- $line
  token=$1 fence=$2 validity_ms=$3

Exit codes: 0 acquired, 64 usage, 69 no quorum, 74 cannot print, 75 another client
  holds the lock.";

pub(crate) const EXTEND: &str = "\
The lock then lasts at least the TTL from now. It is never shortened, and an expired lock is not
revived. FENCING_TOKEN is new and larger than all previous ones; with --plain, it is `-`. The
previous token of the lock works until a store has seen the new one, so pass the new one to the
process that writes. If the original holder still exists, it shares the lock with you, and a release
by either ends it for both. Extend only your own locks, never one whose TOKEN you read from
`redlock status`.

Example:
  redlock extend build \"$token\" --ttl 60s

Exit codes: 0 extended, 1 not held, 64 usage, 69 no quorum, 74 cannot print.";

pub(crate) const RELEASE: &str = "\
With a token, only the lock with this token is released.

With --force, the key is deleted on all masters for any holder, without a check that the holder is
gone. A running holder loses the lock. It notices at its next extension, usually after a third of
its TTL, and until then it works at the same time as the next holder. Run `redlock status` first:
the lock of a dead holder expires by itself, unless `status` shows that it never expires. The
command prints the keys that it deletes, and prompts for confirmation on a terminal. Elsewhere,
--yes is required. A lock acquired in the meantime and a key of another type are not deleted.

With --mark, the completion mark of this name is deleted instead of the lock, so that the job runs
again at the next request. Use it also if the mark is invalid, for example because --fire was in
milliseconds or a clock was wrong.

Examples:
  redlock release build \"$token\"
  redlock release --force build
  redlock release --force --mark report

Exit codes: 0 released, 1 not held, or nothing to delete, 64 usage, 69 not confirmed by a quorum,
  74 cannot print.";

pub(crate) const STATUS: &str = "\
The output is a snapshot, read from the masters one by one, and may be outdated when you read it. To
be sure of a lock, hold it. Equal answers are shown once; -v shows each master, with its latency.
The time since which a lock is held is part of its token, by the clock of the host that acquired it.
Tokens of other clients do not contain it. The fencing token is not stored on the masters.

With a key, the last completed run (`run --once-in`, `--fire`) is also shown.

With --watch, the present state is printed, and then a line for each change of the state or the
holder, until Ctrl-C, which exits with 0. A terminal is redrawn in place. A state that lasts for two
seconds is always printed, and a shorter one may be missed. It continues if masters fail, and prints
undecided while no majority answers.

With --permits, the holder of each slot of `run --permits` is shown, and how many processes wait.
The exit code is 0 if a slot is held, 1 if all are free or reserved, and 69 if one is undecided and
none is held.

Without a key, all held locks under the prefix are listed. A key is a held lock if it expires and a
majority of the masters has it with the same token: a UUID with a label or, from other clients, 16
to 128 letters and digits. A key that never expires is also listed if a majority of the masters has
it with the same string, because no client can acquire its lock. redlock creates no such key.
`redlock release --force KEY` deletes it.

The masters are searched with SCAN, which examines at most 10,000 keys. Use --prefix if they also
hold other data. Completed runs are listed after the locks.

Exit codes: 0 the lock is held, or the list was printed; 1 the lock is free; 64 usage;
  69 undecided, or no quorum answers; 74 cannot print.";

pub(crate) const INIT: &str = "\
A master that restarts, is flushed or was a replica for a while may have lost a lock. It does not
vote for 1.1 × --max-ttl. A new master looks the same and waits as well, unless an operator
confirms that it is new.

By running init you assert that either no master was restarted, flushed or replaced in the last
1.1 × --max-ttl, or no lock is held on them. If that is false, two clients could hold the same
lock. On a terminal, init shows the masters with their processes and uptimes, and prompts for
confirmation. Elsewhere, --yes is required.

init also records its list as the set of masters, on every master, if all of them answer. Clients
are refused if their list has two masters more or fewer than the set, or two masters of another set.
If another set was recorded, init shows both lists. A list that differs by more than one master
needs --again. Change one master at a time, and wait for 1.1 × --max-ttl between two changes.

init waits 3s for all masters, and at most 1.1 × --max-ttl for a master that loads its data. A
second call with the same list changes nothing. If the list spells the same masters differently, the
set gets a new id, and no client is refused. Without --again, init refuses if it cannot read the
record of every master, or if the prefix was in use and a master may have lost data. So init in a
start script never ends a quarantine, unless the records of all masters are gone. With --again, only
a majority must answer. A --floor more than a minute ahead of the masters' clocks requires
--far-floor. If all masters ever restart empty, pass it again, larger than every token seen.
--max-ttl D raises the largest TTL. --again --max-ttl D can also lower it if all masters answer.

Examples:
  redlock init
  redlock init --yes          # in a script that has just started the masters
  redlock init --max-ttl 10m  # TTLs of up to ten minutes

Exit codes: 0 a majority votes, 1 not confirmed, 64 usage or refused, 69 no quorum
  or another init was at work, 74 cannot print.";

pub(crate) const DOCTOR: &str = "\
Each finding shows the problem, its impact and the fix. doctor writes nothing. It checks which
masters vote and why others do not, clocks that differ, several masters on one host, masters that
evict keys or do not report key changes, missing rights and commands, keys of another type in the
place of queues, and invalid completion marks. Without --plain, it also checks for masters without
fencing-token support and for ballots that another program has written.

A problem of several masters is shown once, with all of them, and so is their state. -v shows each
master and its uptime. Causes precede their effects. --json has one finding per master.

The settings are shown with the source of each value: an option, the environment, a line of the
configuration file, or the default. Credentials are shown as ***.

States:
  admitted     it votes
  quarantine   it may have lost a lock, so it does not vote until all earlier locks have expired
  none         it is not admitted, and its quarantine has not started: it is new, it restarted, or
               it cannot be admitted; its finding shows which
  refused      it was reached, and rejected this user or replied with another error; or its
               recorded set does not fit this list, so no new lock is requested there
  unreachable  it was not reached

Exit codes: 0 no errors or warnings, 1 errors or warnings, 64 usage, 74 cannot print.";

pub(crate) const ACL: &str = "\
For each server version of the masters, acl prints one line for redis-cli that creates the user
`redlock` with the rights of all subcommands, for the --prefix. Notes on stderr show the masters of
each line. If no master can be reached, it prints the line for the newest version.

With --check, it tests each right of the user in the URLs and writes nothing. Each line shows one
master and the missing rights.

Examples:
  redlock acl --prefix app: | sed \"s/>PASSWORD/>$secret/\" | redis-cli -h m1
  redlock acl --check --prefix app:

Exit codes: 0 printed, or all rights are there; 1 a right is missing; 64 usage; 69 a master could
  not be examined (--check); 74 cannot print.";

pub(crate) const DEV: &str = "\
dev runs the redis-server (or valkey-server) on your PATH. The masters listen only on 127.0.0.1,
store nothing on disk, and are admitted for --prefix and --max-ttl. When all of them answer, dev
prints a line REDLOCK_NODES=url,url,...; paste it after `export` in another terminal. The masters
exit with this command. It prints a note if a master exits on its own, and exits after the last one.

Examples:
  redlock dev
  redlock dev --nodes 3 --port 7101

Exit codes: 0 stopped, 64 usage, 69 the masters cannot be started.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_named() {
        for setting in redlock_quorum::environment::SETTINGS {
            assert!(LONG.contains(&format!(" {}", setting.name)), "{setting:?}");
        }
    }

    #[test]
    fn no_line_is_too_long_for_a_terminal() {
        // Help wraps longer lines at this width, which leaves fragments.
        const WIDTH: usize = 100;
        for text in [SHORT, LONG, RUN, ACQUIRE, EXTEND, RELEASE, STATUS, INIT, DOCTOR, ACL, DEV] {
            for line in text.lines() {
                assert!(line.len() <= WIDTH, "{line}");
            }
        }
    }
}
