#!/bin/sh
# Builds the static binary of `redlock` for this machine's architecture, and prints its target and its
# path. It is built with musl if that target is installed, otherwise with glibc.
set -eu
cd "$(dirname "$0")/.."

TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
PACKAGING=crates/redlock-cli/packaging
MAX_MIB=8

say() {
    echo "static: $1" >&2
}

fail() {
    say "$1"
    exit 1
}

has_target() {
    [ -d "$(rustc --print target-libdir --target "$1")" ]
}

# ring compiles C code, so the standard library alone is not enough.
choose_target() {
    musl=$ARCH-unknown-linux-musl
    if ! has_target "$musl"; then
        say "glibc, because the target $musl is not installed"
    elif ! command -v musl-gcc >/dev/null; then
        say "glibc, because musl-gcc is not installed"
    else
        say "musl"
        TARGET=$musl
        return
    fi
    TARGET=$ARCH-unknown-linux-gnu
    say "name resolution by \`files\` and \`dns\`, which are linked, whatever /etc/nsswitch.conf names"
}

# RUSTFLAGS replaces the flags of cargo's configuration, and `--target` keeps them from build scripts.
# Random numbers come from the system call. By default, a static glibc reads /dev/urandom, which an
# empty root does not have.
build() {
    flags="-C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\""
    if [ "$TARGET" = "$ARCH-unknown-linux-gnu" ]; then
        mkdir -p "$TARGET_DIR/$TARGET"
        "${CC:-cc}" -O2 -c "$PACKAGING/static.c" -o "$TARGET_DIR/$TARGET/static.o"
        flags="$flags -C link-arg=$TARGET_DIR/$TARGET/static.o"
    fi
    RUSTFLAGS="${RUSTFLAGS:-} $flags" \
        cargo build --release --locked --quiet -p redlock-cli --bin redlock --target "$TARGET" >&2
}

check() {
    ! readelf --program-headers "$1" | grep -q INTERP || fail "$1 needs a dynamic loader"
    ! readelf --dynamic "$1" | grep -q NEEDED || fail "$1 needs shared libraries"
    size=$(stat -c %s "$1")
    [ "$size" -le $((MAX_MIB << 20)) ] || fail "$1 has $size bytes, more than $MAX_MIB MiB"
    say "$size bytes, no shared libraries"
}

[ "$(uname -s)" = Linux ] || fail "a static binary can only be built on Linux"
ARCH=$(uname -m)
choose_target
build
check "$TARGET_DIR/$TARGET/release/redlock"
echo "$TARGET $TARGET_DIR/$TARGET/release/redlock"
