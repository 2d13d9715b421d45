#!/usr/bin/env bash
# Counts lines of code in the driver and in the crates of the client, without blank lines, comments
# and tests. Arguments replace these folders.
set -euo pipefail
cd "$(dirname "$0")/.."

# Tests are in files and folders of that name, and in modules after `#[cfg(test)]` at the end of a
# file.
count() {
    find "$1" -name '*.rs' ! -path '*/tests/*' ! -name tests.rs ! -name lab.rs -print0 | sort -z |
        xargs -0 awk '
            FNR == 1 { in_tests = 0 }
            /^#\[cfg\(test\)\]/ { cfg = 1; next }
            cfg { cfg = 0; if (/\{$/) in_tests = 1; if (/^(pub\(crate\) )?mod /) next }
            in_tests { if (/^\}/) in_tests = 0; next }
            /^[[:space:]]*($|\/\/)/ { next }
            { lines++ }
            END { print lines + 0 }'
}

if [ $# = 0 ]; then
    set -- crates/redlock-quorum/src/driver crates/redlock-quorum/src crates/redlock-protocol/src
fi
for folder; do
    printf '%7d  %s\n' "$(count "$folder")" "$folder"
done
