#!/bin/sh
# Installs the command BINARY, its man pages and its completions below PREFIX, and prints each file.
# DESTDIR, if set, is put in front of PREFIX.
set -eu
[ $# = 2 ] || { echo "usage: $0 BINARY PREFIX" >&2; exit 2; }
BINARY=$1
PREFIX=${DESTDIR:-}$2

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT

put() {
    mkdir -p "$(dirname "$3")"
    install -m "$1" "$2" "$3"
    echo "$3"
}

"$(dirname "$0")/pages.sh" "$BINARY" "$pages"
put 755 "$BINARY" "$PREFIX/bin/redlock"
for page in "$pages"/man/*; do
    put 644 "$page" "$PREFIX/share/man/man1/${page##*/}"
done
put 644 "$pages/completions/redlock.bash" "$PREFIX/share/bash-completion/completions/redlock"
put 644 "$pages/completions/_redlock" "$PREFIX/share/zsh/site-functions/_redlock"
put 644 "$pages/completions/redlock.fish" "$PREFIX/share/fish/vendor_completions.d/redlock.fish"
