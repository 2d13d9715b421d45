#!/usr/bin/env bash
# Builds all tests except the container tests, then runs their programs in parallel, because most of
# them usually wait for real servers. The output has one line per program, after the output of its
# failed tests. Arguments go to every program, such as a part of test names.
set -euo pipefail
cd "$(dirname "$0")/.."

# No test reads the settings of this host.
export REDLOCK_CONFIG=/dev/null

# The number of parallel tests in a program that waits. Each test has its own servers.
TESTS=$(($(nproc) * 10 < 80 ? $(nproc) * 10 : 80))
LOGS=$(mktemp -d)
trap 'rm -rf "$LOGS"' EXIT

# The programs, one per line: name, folder of its package and path, separated by tabs. The largest
# are first.
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

# The programs that compute, with neither servers nor a real clock. They have the lowest priority,
# because a test about one second must get its CPU time within that second. The smallest are first, so
# that the largest have the whole machine after all other programs have finished.
COMPUTES='^(tests/(sim|newcomer)|model/bounds|fleet/(lib|short)|redlock-protocol/lib|redlock-quorum/(doorbell|imports)|doc)$'

start() {
    local name=$1 folder=$2 path=$3
    shift 3
    cd "$folder"
    if [ "$name" = doc ]; then
        nice -n 19 cargo test --workspace --locked --doc --quiet -- "$@"
    elif [[ $name =~ $COMPUTES ]]; then
        nice -n 19 "$path" "$@"
    else
        RUST_TEST_THREADS=${RUST_TEST_THREADS:-$TESTS} "$path" "$@"
    fi
}

report() {
    local begun=$SECONDS log=$LOGS/${1//\//.}.log said=ok
    (start "$@") </dev/null >"$log" 2>&1 || said=FAILED
    if [ "$said" != ok ]; then
        touch "$LOGS/failed"
        # The failures, or the whole output if there is no result.
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

# The build is in this script's process group, and ends with it.
programs >"$LOGS/programs"

# Each lane is a separate process group, and ends with this script.
set -m
trap 'for lane in $(jobs -pr); do kill -- "-$lane" || true; done; rm -rf "$LOGS"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

SECONDS=0
awk -F '\t' -v re="$COMPUTES" '$1 ~ re' "$LOGS/programs" | tac | lane "$@" &
awk -F '\t' -v re="$COMPUTES" '$1 !~ re' "$LOGS/programs" | lane "$@" &
wait
echo "$(tests "$LOGS"/*.log) tests in $SECONDS s"
# A lane may have exited before its programs, because of a signal from one of them.
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
