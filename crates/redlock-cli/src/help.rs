//! What `--help` says beyond the options: examples, exit codes, and what to know.

pub(crate) const SHORT: &str = "\
Examples:
  redlock run backup -- /usr/local/bin/backup --full
  redlock run deploy --wait forever --ttl 10s -- make deploy
  redlock status deploy

`redlock --help` tells exit codes and environment; `redlock run --help` all about run.";

pub(crate) const LONG: &str = "\
Examples:
  Five masters, named once:
    export REDLOCK_NODES=redis://m1,redis://m2,redis://m3,redis://m4,redis://m5

  A cron job that many hosts try and one runs; who comes too late leaves quietly:
    redlock run nightly-report -n -E 0 -- /usr/local/bin/report

  One deployment at a time, first come first served or not, but never two:
    redlock run deploy --wait forever -- make deploy

  A lock over several steps of a script:
    read -r token fence validity_ms < <(redlock acquire build --ttl 60s)
    redlock extend build \"$token\" --ttl 60s
    redlock release build \"$token\"

  Who holds it?
    redlock status deploy

  Masters to play with, in another terminal:
    redlock dev

Exit codes:
  0    done; `status`: one token holds a majority
  1    the lock was not ours (`extend`, `release`); `status`: a majority is free
  64   wrong usage or bad input
  69   no quorum: too few masters answered or count; `status`: undecided
  74   the result cannot be printed
  75   held by another until the wait ran out (-E changes it)
  79   the lock was lost while the command ran
  126  `run`: the command cannot be run
  127  `run`: the command is not found
  `run` ends with the code of its command, or 128 + the signal that ended it.
  Whenever the code is not that of the command, one line on stderr that starts with
  `redlock:` tells the cause and what each master answered.

Environment:
  REDLOCK_NODES         the masters, separated by commas
  REDLOCK_NODES_FILE    a file with one master on each line; # begins a comment
  REDLOCK_NODE_TIMEOUT, REDLOCK_PREFIX, REDLOCK_MAX_TTL,
  REDLOCK_TLS_CA, REDLOCK_TLS_CERT, REDLOCK_TLS_KEY
                        as the options; --node wins over REDLOCK_NODES, and that over the file

Durations:
  500ms, 10s, 1.5m, 1h30m, 2d; a bare number is seconds.

What it does not promise:
  A lock can end before its holder notices: when clocks jump, when masters lose their memory,
  or when a whole machine stands still and goes on later. In all other cases redlock's own clock
  stops the command in time, also when redlock itself is stopped.";

pub(crate) const RUN: &str = "\
The command:
  gets REDLOCK_KEY, REDLOCK_TOKEN and REDLOCK_FENCING_TOKEN, and no URL of a master, unless
  --pass-nodes is given. It runs in a process group of its own, which is in the foreground where
  there is a terminal. INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the group, a second
  TERM within half a second is not. Ctrl-Z stops the whole job, and the lock is then not
  extended: the command is killed before the lock ends.

When the lock is lost:
  it is extended at a third of the TTL. When that fails for so long that no more than
  --kill-after is left (or a third of the TTL), the group gets SIGTERM, and SIGKILL before the
  lock ends. When masters tell that the lock is gone, it gets SIGKILL at once. Then redlock
  waits for the command and ends with 79. A second process, `redlock __watchdog`, kills the
  group in time when redlock is stopped, and at once when redlock is killed; the command itself
  dies with redlock in any case (on Linux). What has left the group lives on. A command that
  changes its user, as sudo does, can neither be killed by redlock nor dies with it.

Examples:
  redlock run backup -- /usr/local/bin/backup --full
  redlock run backup --ttl 10s --kill-after 2s --max-hold 1h -- backup --full
  redlock run backup -n -E 0 -- backup     # another host does it? fine
  redlock run report --ttl 10m --max-ttl 10m --keep -- report   # once, and again when it fails
  redlock run counter -- sh -c 'n=$(cat n); echo $((n + 1)) > n'

Exit codes: the command's, or 128 + signal; 64 usage, 69 no quorum, 75 held by another,
  79 lost, 126 cannot be run, 127 not found.";

pub(crate) const ACQUIRE: &str = "\
Nobody extends the lock after that: it ends after its TTL, unless it is extended or released with
the token. VALIDITY_MS is what is left of it; `-` stands where there is no fencing token. When the
line cannot be printed, the lock is released.

Example:
  read -r token fence validity_ms < <(redlock acquire build --ttl 60s)

Exit codes: 0 acquired, 64 usage, 69 no quorum, 74 cannot print, 75 held by another.";

pub(crate) const EXTEND: &str = "\
The lock then lasts at least the TTL from now; it is never shortened. A lock that has ended is
not revived.

Example:
  redlock extend build \"$token\" --ttl 60s

Exit codes: 0 extended, 1 not ours, 64 usage, 69 no quorum, 74 cannot print.";

pub(crate) const RELEASE: &str = "\
Only the lock with this token is released, never somebody else's.

Example:
  redlock release build \"$token\"

Exit codes: 0 released, 1 not ours, 64 usage, 69 not confirmed by a quorum, 74 cannot print.";

pub(crate) const STATUS: &str = "\
A snapshot, taken from the masters one by one. By the time it is read the answer may be another:
to be sure of a lock, hold it.

Exit codes: 0 one token holds a majority, 1 a majority is free, 64 usage, 69 undecided.";

pub(crate) const DEV: &str = "\
They are servers from the redis-server (or valkey-server) on PATH, listen on 127.0.0.1 alone and
keep nothing. When all answer, a line REDLOCK_NODES=url,url,... is printed; copy it into another
terminal behind `export`. They end with this command.

Examples:
  redlock dev
  redlock dev --nodes 3 --port 7101

Exit codes: 0 stopped, 64 usage, 69 they cannot be started.";
