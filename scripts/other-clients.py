"""Locks of other programs and ours exclude each other. Started by other-clients.sh."""

import subprocess
import sys
import time

import redis
import redlock as redlock_py

COMMAND = sys.argv[1]
KEY = "orders:42"
HELD = 75
PORT = "17001"


class OneMaster:
    """redis-py's Lock."""

    name, masters = "redis-py's Lock", 1

    def __init__(self, urls):
        self.client = redis.Redis.from_url(urls[0])

    def acquire(self):
        lock = self.client.lock(KEY, timeout=30, blocking=False)
        return lock if lock.acquire() else None

    def release(self, lock):
        lock.release()


class FiveMasters:
    """redlock-py."""

    name, masters = "redlock-py", 5

    def __init__(self, urls):
        self.client = redlock_py.Redlock(list(urls), retry_count=1)

    def acquire(self):
        return self.client.lock(KEY, 30_000) or None

    def release(self, lock):
        self.client.unlock(lock)


def ours(urls, *words):
    """Starts our command."""
    words = [COMMAND, *words, "--node-timeout", "200ms"]
    words += [word for url in urls for word in ("--node", url)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process, code):
    """What it printed; it must end with this code."""
    out, err = process.communicate(timeout=30)
    assert process.returncode == code, f"{process.args}: {process.returncode}: {out}{err}"
    return out


def they_hold(client, urls):
    theirs = client.acquire()
    assert theirs, "the key is free"
    ended(ours(urls, "acquire", KEY, "--wait", "0s"), HELD)
    waiting = ours(urls, "acquire", KEY, "--wait", "20s")
    time.sleep(1)
    assert waiting.poll() is None, "it waits while they hold the lock"
    client.release(theirs)
    begun = time.monotonic()
    token = ended(waiting, 0).split()[0]
    print(f"{client.name}: they held, we were refused, waited, and had it "
          f"{time.monotonic() - begun:.3f} s after their release (with our clean-up)")
    return token


def we_hold(client, urls, token):
    assert client.acquire() is None, "they are refused while we hold the lock"
    ended(ours(urls, "extend", KEY, token, "--ttl", "20s"), 0)
    assert client.acquire() is None, "their clean-up has taken nothing of ours"
    ended(ours(urls, "release", KEY, token), 0)
    theirs = client.acquire()
    assert theirs, "what we released is free for them"
    client.release(theirs)
    print(f"{client.name}: we held, they were refused, and had it behind our release")


def main():
    for kind in (OneMaster, FiveMasters):
        words = [COMMAND, "dev", "--nodes", str(kind.masters), "--port", PORT]
        dev = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            lines = iter(dev.stdout.readline, "")
            line = next(line for line in lines if line.startswith("REDLOCK_NODES="))
            urls = line.strip().removeprefix("REDLOCK_NODES=").split(",")
            client = kind(urls)
            we_hold(client, urls, they_hold(client, urls))
        finally:
            dev.terminate()
            dev.wait(30)


main()
