#!/usr/bin/env bash
# Checks that the crates can be published, and prints each part that it skips with the reason. It
# installs cargo-deny and cargo-semver-checks if they are missing, and prints that.
set -euo pipefail
cd "$(dirname "$0")/.."

TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
CRATES=(redlock-core redlock-protocol redlock-testkit redlock-quorum redlock-cli)
VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
MSRV=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
BUILT=$TARGET_DIR/release-check
CARGO_DENY=0.20.2
CARGO_SEMVER_CHECKS=0.51.0

say() {
    echo "release-check: $1"
}

skip() {
    say "skipped $1: $2"
}

fail() {
    say "$1" >&2
    exit 1
}

# Writes the archives of all crates. Cargo packs only what is committed.
package() {
    local packages=()
    for crate in "${CRATES[@]}"; do packages+=(-p "$crate"); done
    cargo package --locked --quiet --no-verify "${packages[@]}"
    rm -rf "$BUILT/crates"
    mkdir -p "$BUILT/crates"
    for crate in "${CRATES[@]}"; do
        tar -xzf "$TARGET_DIR/package/$crate-$VERSION.crate" -C "$BUILT/crates"
        examine "$BUILT/crates/$crate-$VERSION"
    done
    say "packed ${CRATES[*]}"
}

examine() {
    for file in README.md LICENSE-MIT LICENSE-APACHE; do
        [ -s "$1/$file" ] || fail "${1##*/} lacks $file"
    done
    for key in description readme keywords categories license rust-version; do
        grep -q "^$key = " "$1/Cargo.toml" || fail "${1##*/} lacks $key"
    done
    grep -A1 '^\[package.metadata.docs.rs\]' "$1/Cargo.toml" | grep -q '^all-features = true' ||
        fail "${1##*/} lacks all-features for docs.rs"
}

# The crates of the archives in place of those of the registry.
patches() {
    for crate in "${CRATES[@]}"; do
        printf -- '--config\npatch.crates-io.%s.path="%s"\n' "$crate" "$BUILT/crates/$crate-$VERSION"
    done
}

# A folder outside of this workspace, so that nothing but the archives is used.
build_from_archives() {
    local outside cargo
    outside=$(mktemp -d)
    mapfile -t patches < <(patches)
    cp -r "$BUILT/crates/redlock-cli-$VERSION" "$outside/redlock-cli"
    cargo=(cargo --config "profile.dev.debug=false" "${patches[@]}")
    (
        cd "$outside/redlock-cli"
        export CARGO_TARGET_DIR=$BUILT/target
        rm -f Cargo.lock
        "${cargo[@]}" build --quiet --bin redlock
        "$BUILT/target/debug/redlock" --version
        "${cargo[@]}" doc --quiet --no-deps -p redlock-testkit
    )
    rm -rf "$outside"
    say "built redlock-cli and the documentation of redlock-testkit from the archives"
}

check_dependencies() {
    if ! scripts/need-tool.sh deny "$CARGO_DENY"; then
        skip "licences, bans, sources and advisories" "cargo-deny cannot be installed"
        return
    fi
    cargo deny --all-features check bans licenses sources
    if cargo deny --all-features fetch db >/dev/null 2>&1; then
        cargo deny --all-features check advisories
    else
        skip "advisories" "their database cannot be reached"
    fi
}

check_versions() {
    local tag
    tag=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || true
    if [ -z "$tag" ]; then
        skip "semver checks" "there is no tag to compare with"
    elif ! scripts/need-tool.sh semver-checks "$CARGO_SEMVER_CHECKS"; then
        skip "semver checks" "cargo-semver-checks cannot be installed"
    else
        cargo semver-checks --baseline-rev "$tag" -p redlock-quorum
    fi
}

check_oldest_rust() {
    if ! command -v rustup >/dev/null; then
        skip "the build with Rust $MSRV" "rustup is missing"
    elif ! rustup run "$MSRV" cargo --version >/dev/null 2>&1; then
        skip "the build with Rust $MSRV" "that toolchain is not installed"
    else
        CARGO_TARGET_DIR=$BUILT/msrv rustup run "$MSRV" cargo check --locked --quiet -p redlock-cli -p redlock-quorum --all-features
        say "built with Rust $MSRV"
    fi
}

package
build_from_archives
check_dependencies
check_versions
check_oldest_rust
say "done"
