#!/bin/sh
# Installs valgrind and strace if they are missing, and prints that first.
set -eu

for tool in valgrind strace; do
    command -v "$tool" >/dev/null && continue
    command -v apt-get >/dev/null || { echo "$tool is missing: install it, then run make again." >&2; exit 1; }
    [ "$(id -u)" = 0 ] && AS_ROOT="" || AS_ROOT="sudo"
    echo "No $tool on PATH: installing it with apt-get." >&2
    $AS_ROOT apt-get update -q || echo "apt-get update failed; continuing with the existing lists." >&2
    $AS_ROOT env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "$tool" </dev/null
done
