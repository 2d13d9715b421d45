#!/usr/bin/env bash
# Runs the tests on real servers with each server of fetch-servers.sh, one server at a time, and prints
# a table. Arguments are the names of servers, such as redis-6.2.14 (default: all).
set -euo pipefail
cd "$(dirname "$0")/.."

SERVERS=$(realpath -m "${CARGO_TARGET_DIR:-target}/servers")
LOGS=$SERVERS/logs
TABLE=$SERVERS/table.md
# The tests of the command that depend on the version of a server. All of tests/redis does.
COMMAND_TESTS='acl:: rights:: doctor:: unsuitable:: tls:: fencing:: missing_commands:: credentials::'
export REDLOCK_CONFIG=/dev/null

# Most tests wait for their servers.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 8))}

run_tests() {
    local status=0
    cargo test --locked --quiet -p tests --test redis -- --show-output || status=1
    cargo test --locked --quiet -p redlock-cli --test cli -- --show-output $COMMAND_TESTS || status=1
    return $status
}

sum() {
    awk -v of="$1" '/^test result:/ { for (i = 2; i <= NF; i++) if ($i ~ "^" of) sum += $(i - 1) } END { print sum + 0 }' "$2"
}

row() {
    local name=$1 log=$LOGS/$1.log said=ok
    export REDLOCK_SERVER_BIN=$SERVERS/$name/server
    run_tests </dev/null >"$log" 2>&1 || said=FAILED
    local passed failed skipped reasons
    passed=$(sum passed "$log") failed=$(sum failed "$log") skipped=$(grep -c '^skipped: ' "$log" || true)
    reasons=$(sed -n 's/^skipped: //p' "$log" | sort | uniq -c | sed 's/^ *\([0-9]*\) /\1: /' | paste -sd ';' | sed 's/;/; /g')
    if [ "$said" != ok ]; then
        sed -n '/^failures:$/,$p' "$log" | grep . || cat "$log"
        touch "$LOGS/failed"
    fi >&2
    printf '| %s | %d | %d | %s | %s |\n' "${name/-/ }" $((passed + failed)) $((passed - skipped)) \
        "${reasons:-0}" "$(sed -n 's/^lacks: //p' "$log")" | tee -a "$TABLE"
}

scripts/fetch-servers.sh "$SERVERS" >/dev/null
mkdir -p "$LOGS"
rm -f "$LOGS"/*
[ $# -gt 0 ] || set -- $(cd "$SERVERS" && ls -d redis-* valkey-* | sort -V)
printf '| server | tests | passed | skipped | missing features |\n|---|---|---|---|---|\n' | tee "$TABLE"
for name in "$@"; do
    row "$name"
done
if [ -e "$LOGS/failed" ]; then
    echo "some tests have failed: what they wrote is above" >&2
    exit 1
fi
