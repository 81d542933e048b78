# make run     set up, build, start a server on 127.0.0.1:27017 with its data in ./data
# make test    every check and every test
# The other targets are listed by `make help`.

MAYFLY_CACHE ?= $(HOME)/.cache/mayflydb
# One target folder for all clones: their dependencies are the same.
CARGO_TARGET_DIR ?= $(MAYFLY_CACHE)/target
export MAYFLY_CACHE CARGO_TARGET_DIR

# Every cargo command that compiles the engine goes through it: see scripts/rocksdb.
CARGO := scripts/rocksdb cargo

.PHONY: help run build packaged dist deb deb-test test check-fmt check-clippy check-tidy test-rust test-fuzz clients histories
.PHONY: torture bench instructions docs fmt setup setup-build setup-cluster cluster cluster-test clean

help:
	@echo 'make run ARGS="--port 27018"   build a release and start it; ARGS are flags of mayflydb'
	@echo 'make test                      every check and every test'
	@echo 'make clients                   the client suites alone (tests/clients)'
	@echo 'make histories                 histories over the network with kills and cuts, for ten minutes;'
	@echo '                               ARGS="--seconds 60" or other flags of wire-history instead'
	@echo 'make cluster                   several servers over PostgreSQL with Patroni and etcd, until Ctrl-C; data in ./data-cluster'
	@echo 'make cluster-test              the same under load, with faults, for fifteen minutes; ARGS=--short for five'
	@echo 'make torture                   tests that try to break the server, each for an hour; TORTURE_SECONDS,'
	@echo '                               TORTURE_STEPS and SEED change that (scripts/torture)'
	@echo 'make packaged                  the binary as it is packaged: optimised across crates, two minutes more'
	@echo 'make dist                      the binaries that are published: for x86-64 and arm64, glibc 2.28 and newer, with sums'
	@echo '                               and a bill of materials; ARGS="--check" also builds them again and compares'
	@echo 'make deb                       the Debian package of that binary (cargo-deb)'
	@echo 'make deb-test                  install, upgrade and purge it in a root of its own (needs root, debootstrap, lintian)'
	@echo 'make bench                     measure every budget, medians of five runs (10 minutes);'
	@echo '                               ARGS="table --quick" or other flags of mayfly-bench instead'
	@echo 'make instructions              count instructions per operation, compare with the recorded table (needs valgrind)'
	@echo 'make docs                      build the source documentation; broken links are errors'
	@echo 'make fmt                       format the source'
	@echo 'make setup                     install what build and tests need (Debian, Ubuntu) or say what is missing'
	@echo 'make setup-cluster             the same for the cluster: Patroni, etcd, PostgreSQL'
	@echo 'make clean                     remove what this workspace compiled, but not RocksDB and not ./data'

run: build
	exec "$(CARGO_TARGET_DIR)/release/mayflydb" $(ARGS)

build: setup-build
	@scripts/build

packaged: setup-build
	$(CARGO) build --profile dist --locked -p mayfly-server

dist: setup-build
	@scripts/dist $(ARGS)

deb: packaged
	@scripts/deb dist

deb-test: deb
	scripts/deb-test "$(CARGO_TARGET_DIR)/dist/mayflydb.deb"

# Everything below in an order that keeps the cores busy, with the time of each step.
test: setup
	@scripts/test

check-fmt: setup-build
	cargo fmt --all --check

check-clippy: setup-build
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

check-tidy: setup-build
	$(CARGO) run --quiet --locked -p mayfly-xtask -- tidy

test-rust: setup-build
	$(CARGO) test --workspace --locked --no-fail-fast

test-fuzz: setup-build
	scripts/fuzz-smoke

clients: setup
	$(CARGO) build --locked -p mayfly-server
	MAYFLYDB_BIN="$(CARGO_TARGET_DIR)/debug/mayflydb" tests/clients/run.py

histories: setup-build
	$(CARGO) build --locked -p mayfly-server -p mayfly-testkit
	"$(CARGO_TARGET_DIR)/debug/wire-history" --server "$(CARGO_TARGET_DIR)/debug/mayflydb" \
		$(or $(ARGS),--seconds 600 --clients 16)

# It writes into the checkout, or where ARGS="--data FOLDER" says.
cluster: build setup-cluster
	MAYFLYDB_BIN="$(CARGO_TARGET_DIR)/release/mayflydb" exec tests/cluster/run.py keep $(ARGS)

cluster-test: setup-build setup-cluster
	$(CARGO) build --locked -p mayfly-server
	MAYFLYDB_BIN="$(CARGO_TARGET_DIR)/debug/mayflydb" exec tests/cluster/run.py test $(ARGS)

torture: setup-build
	@scripts/torture

bench: packaged
	$(CARGO) build --profile dist --locked -p mayfly-bench
	"$(CARGO_TARGET_DIR)/dist/mayfly-bench" --server "$(CARGO_TARGET_DIR)/dist/mayflydb" \
		$(or $(ARGS),table --budget --runs 5)

instructions: setup-build
	scripts/instructions $(ARGS)

docs: setup-build
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' \
		$(CARGO) doc --workspace --no-deps --document-private-items --locked

fmt:
	cargo fmt --all

setup:
	@scripts/setup all

setup-build:
	@scripts/setup build

setup-cluster:
	@scripts/setup cluster

clean:
	cargo clean $(patsubst crates/%,-p mayfly-%,$(wildcard crates/*))
	rm -rf tests/.work
