#!/usr/bin/env bash
# Builds all tests but those on containers, then runs their programs side by side: most of them wait
# for real servers most of the time, and the others compute. A program is one line of the output,
# behind what its failed tests wrote. Arguments go to every program, such as a part of tests' names.
set -euo pipefail
cd "$(dirname "$0")/.."

# No test reads the settings of this host.
export REDLOCK_CONFIG=/dev/null

# How many tests of a program that waits run at once: each has some servers of its own.
TESTS=$(($(nproc) * 10 < 80 ? $(nproc) * 10 : 80))
LOGS=$(mktemp -d)
trap 'rm -rf "$LOGS"' EXIT

# The programs, one a line: name, folder of its package, path, with tabs between. The largest are
# first.
programs() {
    local artifact='"manifest_path":"([^"]*)/Cargo.toml","target":\{"kind":\["([a-z]*)"\],.*"name":"([^"]*)",'
    cargo test --workspace --locked --no-run --message-format=json-render-diagnostics |
        sed -nE "s|.*$artifact.*\"profile\":\{[^}]*\"test\":true\},.*\"executable\":\"([^\"]*)\".*|\1\t\2\t\3\t\4|p" |
        while IFS=$'\t' read -r folder kind target path; do
            [ "$kind" != lib ] || target=lib
            printf '%s\t%s\t%s\t%s\n' "$(stat -c %s "$path")" "${folder##*/}/$target" "$folder" "$path"
        done | sort -rn | cut -f 2-
    printf 'doc\t%s\t-\n' "$PWD"
}

# Those that compute, with no server and no clock but their own. They get what the others leave of
# the machine: a test of what happens within a second is to be served within it. The smallest are
# first, so that the others have all of the machine once nothing waits any more.
COMPUTES='^(tests/(sim|newcomer)|model/bounds|redlock-protocol/lib|redlock-quorum/(doorbell|imports)|doc)$'

start() {
    local name=$1 folder=$2 path=$3
    shift 3
    cd "$folder"
    if [ "$name" = doc ]; then
        nice -n 5 cargo test --workspace --locked --doc --quiet -- "$@"
    elif [[ $name =~ $COMPUTES ]]; then
        nice -n 5 "$path" "$@"
    else
        RUST_TEST_THREADS=${RUST_TEST_THREADS:-$TESTS} "$path" "$@"
    fi
}

report() {
    local begun=$SECONDS log=$LOGS/${1//\//.}.log said=ok
    (start "$@") </dev/null >"$log" 2>&1 || said=FAILED
    if [ "$said" != ok ]; then
        touch "$LOGS/failed"
        # What failed, or all of what came to no verdict.
        sed -n '/^failures:$/,$p' "$log" | grep . || cat "$log"
    fi
    printf '%-6s %4d tests in %3d s  %s\n' "$said" "$(tests "$log")" $((SECONDS - begun)) "$1" |
        tee -a "$LOGS/reports"
}

tests() {
    awk '/^test result:/ { sum += $4 + $6 } END { print sum + 0 }' "$@"
}

# Runs the programs that it reads, one after the other.
lane() {
    local name folder path
    while IFS=$'\t' read -r name folder path; do
        report "$name" "$folder" "$path" "$@"
    done
}

# The build is of this script's group, and ends with it.
programs >"$LOGS/programs"

# Each lane is a group of processes of its own, and ends with this script.
set -m
trap 'for lane in $(jobs -pr); do kill -- "-$lane" || true; done; rm -rf "$LOGS"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

SECONDS=0
awk -F '\t' -v re="$COMPUTES" '$1 ~ re' "$LOGS/programs" | tac | lane "$@" &
awk -F '\t' -v re="$COMPUTES" '$1 !~ re' "$LOGS/programs" | lane "$@" &
wait
echo "$(tests "$LOGS"/*.log) tests in $SECONDS s"
# A lane may have ended before its programs, by a signal that one of them has sent.
if [ "$(wc -l <"$LOGS/reports")" != "$(wc -l <"$LOGS/programs")" ]; then
    echo "some programs have not come to an end" >&2
    exit 1
elif [ "$(wc -l <"$LOGS/programs")" = 1 ]; then
    echo "no program was found in what cargo says" >&2
    exit 1
elif [ -e "$LOGS/failed" ]; then
    echo "some tests have failed: what they wrote is above" >&2
    exit 1
fi
