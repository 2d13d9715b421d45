#!/bin/sh
# Builds the image redlock:local from the static binary, and checks that it runs.
set -eu
cd "$(dirname "$0")/.."

IMAGE=redlock:local

fail() {
    echo "container: $1" >&2
    exit 1
}

docker info >/dev/null 2>&1 || fail "no docker engine answers: install or start it"
set -- $(scripts/static.sh)
BINARY=$2
# The context is a folder with only the binary.
CONTEXT=$(dirname "$BINARY")/image
mkdir -p "$CONTEXT"
cp "$BINARY" "$CONTEXT/redlock"
docker build --quiet --tag "$IMAGE" --file Containerfile "$CONTEXT"
docker run --rm "$IMAGE" --version
