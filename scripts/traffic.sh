#!/usr/bin/env bash
# Writes a digest of the traffic of 200 simulated seeds to FILE, or compares with FILE if it exists.
# Run it before and after a change that must not affect the requests, on the same base.
set -euo pipefail
[ $# = 1 ] || { echo "usage: scripts/traffic.sh FILE" >&2; exit 2; }
REDLOCK_TRAFFIC=$(realpath -m "$1")
export REDLOCK_TRAFFIC
cd "$(dirname "$0")/.."
cargo test -p tests --test sim --locked traffic_is_the_same_for_the_same_seed
