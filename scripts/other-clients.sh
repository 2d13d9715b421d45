#!/bin/sh
# Runs other clients as real programs, redis-py's Lock on one master and redlock-py on five, and checks
# that their locks and ours exclude each other. Needs python3 and its package index, a redis-server, and
# the built `redlock`, whose path you can pass.
set -eu
here=$(dirname "$0")
redlock=${1:-${CARGO_TARGET_DIR:-$here/../target}/debug/redlock}
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet redis redlock-py
"$venv/bin/python" "$here/other-clients.py" "$redlock"
