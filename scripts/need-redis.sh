#!/bin/sh
# Installs a Redis server if there is none, and prints that first. The demo and the tests start
# disposable masters from its binary. They need no system service, and this script leaves none.
set -eu

have_server() {
    [ -n "${REDLOCK_SERVER_BIN:-}" ] || command -v redis-server >/dev/null || command -v valkey-server >/dev/null
}

fail() {
    echo "$1" >&2
    exit 1
}

choose_root() {
    if [ "$(id -u)" = 0 ]; then
        AS_ROOT=""
    elif command -v sudo >/dev/null; then
        AS_ROOT="sudo"
    else
        fail "No redis-server or valkey-server on PATH, and installing one takes root: install redis (or set REDLOCK_SERVER_BIN to a server's path), then run make again."
    fi
}

POLICY=/usr/sbin/policy-rc.d

# Debian's package starts its service during the installation. Debian runs this file before it starts a
# service. Ours rejects only Redis, exists only during the installation, and never replaces another file.
without_debian_service() {
    if [ ! -e "$POLICY" ]; then
        trap '$AS_ROOT rm -f "$POLICY"' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        printf '#!/bin/sh\ncase "$*" in *redis-server*) exit 101 ;; esac\n' | $AS_ROOT tee "$POLICY" >/dev/null
        $AS_ROOT chmod 755 "$POLICY"
    fi
    "$@"
}

# An enabled service would start at the next boot, and may already run if another policy allowed it.
disable_debian_service() {
    if [ -d /run/systemd/system ]; then
        $AS_ROOT systemctl disable --now redis-server
    else
        $AS_ROOT update-rc.d redis-server disable
        $AS_ROOT invoke-rc.d redis-server stop
    fi >/dev/null 2>&1 || echo "The service redis-server could not be disabled; it is not needed here." >&2
}

install_on_debian() {
    $AS_ROOT apt-get update -q || echo "apt-get update failed; continuing with the existing lists." >&2
    without_debian_service $AS_ROOT env DEBIAN_FRONTEND=noninteractive \
        apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=300 redis-server </dev/null
    disable_debian_service
}

# Some distributions have moved from redis to valkey, and some have both.
install_either() {
    $AS_ROOT "$@" redis || $AS_ROOT "$@" valkey
}

install_with() {
    case "$1" in
        apt-get) install_on_debian ;;
        dnf | yum) install_either "$1" install -y ;;
        apk) install_either apk add ;;
        pacman) install_either pacman -S --noconfirm ;;
        zypper) install_either zypper --non-interactive install ;;
        brew) install_either brew install ;;
    esac
}

install_server() {
    for manager in apt-get dnf yum apk pacman zypper brew; do
        command -v "$manager" >/dev/null || continue
        # Homebrew refuses to run as root; the others need it.
        if [ "$manager" = brew ]; then AS_ROOT=""; else choose_root; fi
        echo "No redis-server or valkey-server on PATH: installing one with $manager." >&2
        install_with "$manager"
        return
    done
    fail "No redis-server or valkey-server on PATH, and no package manager known here: install redis or valkey (or set REDLOCK_SERVER_BIN to a server's path), then run make again."
}

have_server || install_server
have_server || fail "The package brought no redis-server or valkey-server on PATH: install one, or set REDLOCK_SERVER_BIN to its path."
