#!/bin/sh
# Installs `cargo-NAME` at VERSION if it is missing, and prints that. The tool is built quickly rather
# than optimized, because it runs for seconds, and its own release profile can take half an hour.
set -eu
[ $# = 2 ] || { echo "usage: $0 NAME VERSION" >&2; exit 2; }
! cargo "$1" --version >/dev/null 2>&1 || exit 0
echo "cargo-$1 is missing: installing it with \`cargo install --locked cargo-$1@$2\`" >&2
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=1
exec cargo install --locked --quiet "cargo-$1@$2" >&2
