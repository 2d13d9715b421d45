#!/bin/sh
# The five masters of docker-compose.yml: `up`, `down`, `image` and `test`, for the Makefile.
set -eu
cd "$(dirname "$0")/.."

MASTERS="1 2 3 4 5"
NODES="redis://127.0.0.1:7101,redis://127.0.0.1:7102,redis://127.0.0.1:7103,redis://127.0.0.1:7104,redis://127.0.0.1:7105"
REDLOCK="${CARGO_TARGET_DIR:-target}/debug/redlock"
LOCAL_IMAGE=redlock-redis:local
READY_WITHIN_S=60

fail() {
    echo "$1" >&2
    exit 1
}

need_engine() {
    command -v docker >/dev/null ||
        fail "docker is missing: install docker and docker compose. (make test needs neither.)"
    docker info >/dev/null 2>&1 ||
        fail "no docker engine answers: start it, or see what \`docker info\` says. (make test needs none.)"
}

need_compose() {
    need_engine
    if docker compose version >/dev/null 2>&1; then
        COMPOSE="docker compose"
    elif docker-compose version >/dev/null 2>&1; then
        COMPOSE="docker-compose"
    else
        fail "docker compose is missing: install its plugin for docker, or docker-compose 1.29."
    fi
}

# Runs without the standard input, because compose 1.29 would consume it.
compose() {
    $COMPOSE "$@" </dev/null
}

# Includes stopped masters, because their data on disk returns with them. An error is not an empty list.
masters_exist() {
    containers=$(compose ps -a -q) || fail "compose can't say which masters there are; its message is above."
    [ -n "$containers" ]
}

master_answers() {
    [ "$(docker exec "redlock-master-$1" redis-cli role 2>/dev/null | head -n 1)" = master ]
}

wait_for_masters() {
    deadline=$(($(date +%s) + READY_WITHIN_S))
    for n in $MASTERS; do
        until master_answers "$n"; do
            [ "$(date +%s)" -lt "$deadline" ] || give_up_on "$n"
            sleep 0.2
        done
    done
}

give_up_on() {
    compose ps >&2
    docker logs --tail 20 "redlock-master-$1" >&2 || true
    fail "master-$1 did not answer as a master within $READY_WITHIN_S s; its log is above. \`make down\` removes all five."
}

start() {
    compose up -d || fail "the masters did not start. Where ${REDIS_IMAGE:-redis:8-alpine} can't be pulled: \`make image && REDIS_IMAGE=$LOCAL_IMAGE make up\`."
    wait_for_masters
}

build() {
    cargo build --quiet -p redlock-cli --bin redlock --locked
}

# Lets masters that were just started vote immediately. By running this, you assert that no lock is
# held on them.
admit() {
    REDLOCK_CONFIG=/dev/null REDLOCK_NODES="$NODES" "$REDLOCK" init --again --node-timeout 1s >/dev/null ||
        fail "the masters run and do not vote; what redlock init said is above."
}

up() {
    need_compose
    start
    admit
    echo "REDLOCK_NODES=$NODES"
}

# A paused container does not handle the signal to stop, and compose would wait for it.
down() {
    need_compose
    compose unpause >/dev/null 2>&1 || true
    compose down -v --remove-orphans --timeout 5
}

run_tests() {
    need_compose
    scripts/container.sh
    ! masters_exist || fail "the masters are up, and these tests kill and empty them: \`make down\` first."
    trap down EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    # Reuses the artifacts of `make test`. Building only one package would select other features and
    # compile everything again. The command is built for its own tests.
    cargo test --workspace --locked --no-run --test compose --test cli
    up
    REDLOCK_NODES="$NODES" REDLOCK_BIN="$(realpath "$REDLOCK")" \
        cargo test --workspace --locked --test compose
}

copy_into() {
    mkdir -p "$1$(dirname "$3")"
    cp -L "$2" "$1$3"
}

# Prints the libraries and the loader of a binary, each at the path where the binary expects it.
libraries_of() {
    ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }'
}

# Builds an image for machines that cannot pull one. It contains only the redis-server of this machine,
# without a shell, so every command in it is in exec form.
image() {
    need_engine
    [ "$(uname -s)" = Linux ] || fail "make image copies this machine's redis-server: that takes a Linux."
    server=${REDLOCK_SERVER_BIN:-$(command -v redis-server || command -v valkey-server)}
    cli=$(command -v redis-cli || command -v valkey-cli) || fail "redis-cli is missing: the health check needs it."
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    mkdir -p "$root/data" "$root/tmp"
    copy_into "$root" "$server" /usr/bin/redis-server
    copy_into "$root" "$cli" /usr/bin/redis-cli
    for library in $(libraries_of "$server"; libraries_of "$cli"); do
        copy_into "$root" "$library" "$library"
    done
    tar -C "$root" -c . | docker import --change 'WORKDIR /data' --change 'CMD ["redis-server"]' - "$LOCAL_IMAGE"
}

case "${1:-}" in
    up)
        need_compose
        build
        up
        ;;
    down) down ;;
    image) image ;;
    test) run_tests ;;
    *) fail "usage: $0 up | down | image | test" ;;
esac
