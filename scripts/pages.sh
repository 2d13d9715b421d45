#!/bin/sh
# Writes the man pages and completions of the command BINARY to FOLDER/man and FOLDER/completions.
set -eu
[ $# = 2 ] || { echo "usage: $0 BINARY FOLDER" >&2; exit 2; }
BINARY=$1
FOLDER=$2

mkdir -p "$FOLDER/man" "$FOLDER/completions"
"$BINARY" generate man >"$FOLDER/man/redlock.1"
for command in run acquire extend release status init doctor acl dev generate; do
    "$BINARY" generate man "$command" >"$FOLDER/man/redlock-$command.1"
done
"$BINARY" generate completions bash >"$FOLDER/completions/redlock.bash"
"$BINARY" generate completions zsh >"$FOLDER/completions/_redlock"
"$BINARY" generate completions fish >"$FOLDER/completions/redlock.fish"
