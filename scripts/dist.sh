#!/bin/sh
# Writes `dist/` below the target folder: an archive and a Debian package of the static binary, with
# its man pages and completions, and their checksums.
set -eu
cd "$(dirname "$0")/.."

TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
DIST=$TARGET_DIR/dist
CARGO_DEB=3.8.0

say() {
    echo "dist: $1" >&2
}

# The archive has the same bytes in each run: its times are those of the commit.
archive() {
    name=redlock-$VERSION-$TARGET
    cp "$BINARY" LICENSE-MIT LICENSE-APACHE "$PAGES"
    tar --create --directory "$(dirname "$PAGES")" --transform "s|^pages|$name|" --sort=name \
        --owner=0 --group=0 --numeric-owner --mode=go=rX,u+w \
        --mtime="@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}" pages |
        gzip -n >"$DIST/$name.tar.gz"
}

need_cargo_deb() {
    ! cargo deb --version >/dev/null 2>&1 || return 0
    if [ -n "${CI:-}" ]; then
        say "cargo-deb is missing, and a CI run installs no tools"
        return 1
    fi
    scripts/need-tool.sh deb "$CARGO_DEB"
}

package() {
    if need_cargo_deb; then
        cargo deb --quiet --locked --no-build --no-strip -p redlock-cli --target "$TARGET" --output "$DIST" >/dev/null
    else
        say "skipped the Debian package: there is no cargo-deb; the reason is above"
    fi
}

set -- $(scripts/static.sh)
TARGET=$1 BINARY=$2
VERSION=$("$BINARY" --version | cut -d ' ' -f 2)
PAGES=$(dirname "$BINARY")/pages
rm -rf "$DIST" "$PAGES"
mkdir -p "$DIST"
scripts/pages.sh "$BINARY" "$PAGES"
archive
package
cd "$DIST"
sha256sum -- *.tar.gz *.deb >SHA256SUMS 2>/dev/null || sha256sum -- *.tar.gz >SHA256SUMS
cat SHA256SUMS
say "these files are in $DIST"
