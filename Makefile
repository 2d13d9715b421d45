# All targets honor CARGO_TARGET_DIR.
.DEFAULT_GOAL := help
.PHONY: help demo test test-servers check model simulate bench profile doc up down image test-compose dist install container release-check clean need-cargo need-redis

# A newly installed cargo is not yet on the PATH of this shell.
export PATH := $(PATH):$(HOME)/.cargo/bin
CRATES := $(notdir $(wildcard crates/*))

help: ## list the targets (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: need-cargo need-redis ## run eight hosts against five real masters while one is killed and one is paused
	cargo build --release --locked -p redlock-cli --bin redlock --example demo
	cargo run --release --locked --quiet -p redlock-cli --example demo

test: need-cargo need-redis ## run all tests except compose; installs redis-server if it is missing
	scripts/test.sh

check: need-cargo ## check prose, format, lints, each crate separately, and documentation; warnings are errors
	scripts/prose-lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
	cargo clippy --workspace --test compose --all-features --locked -- -D warnings
	set -e; for crate in $(CRATES); do cargo check --locked -p $$crate; done
	cargo clippy --locked -p redlock-core --no-default-features -- -D warnings
	cargo clippy --locked -p redlock-quorum -p redlock-cli --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps --locked

model: need-cargo ## explore every state of the models, and find a counterexample for each mutant
	cargo run --release --locked --quiet -p model

SECONDS ?= 60
SEED ?= 1
simulate: need-cargo ## play stories of clients, masters and faults for SECONDS=60, from SEED=1 on
	@cargo run --release --locked --quiet -p fleet -- $(SECONDS) $(SEED)

bench: need-cargo need-redis ## measure latency and throughput against the floor and peers
	cargo bench -p benches --locked

profile: need-cargo need-redis ## count instructions, allocations and system calls per lock, by file
	@scripts/need-profilers.sh
	cargo run --profile profiling --locked --quiet -p benches --example profile

doc: need-cargo ## build the documentation of the crates as HTML
	cargo doc --workspace --all-features --no-deps --locked

up: need-cargo ## start the five masters of docker-compose.yml on 127.0.0.1:7101-7105 and admit them
	scripts/masters.sh up

down: ## stop these masters and remove their data
	scripts/masters.sh down

image: need-redis ## build an image of this machine's redis-server, for REDIS_IMAGE=redlock-redis:local
	scripts/masters.sh image

test-servers: need-cargo need-redis ## run the tests on real servers with other versions of Redis and Valkey
	nice scripts/test-servers.sh

test-compose: need-cargo ## start these masters, run their tests, and remove them
	scripts/masters.sh test

dist: need-cargo ## write an archive and a .deb of the static binary to dist/ below the target folder
	scripts/dist.sh

PREFIX ?= /usr/local
PROFILE ?= release
install: need-cargo ## install the command, its man pages and completions below PREFIX=/usr/local
	cargo build --profile $(PROFILE) --locked -p redlock-cli --bin redlock
	scripts/install.sh "$(or $(CARGO_TARGET_DIR),target)/$(PROFILE:dev=debug)/redlock" "$(PREFIX)"

container: need-cargo ## build the image redlock:local from the static binary
	scripts/container.sh

release-check: need-cargo ## check that the crates can be published and built from their archives
	scripts/release-check.sh

clean: need-cargo ## remove the build output
	cargo clean

need-cargo:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.88 or newer, as https://rustup.rs says, then run make again." >&2; exit 1; }

need-redis:
	@scripts/need-redis.sh
