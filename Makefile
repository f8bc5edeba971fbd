# Needs Go, git and make; -race also a C compiler. Other tools are installed
# into ./bin by the targets that use them, at pinned versions, once.

.DEFAULT_GOAL := help
GO ?= go

# bench: flags for both benchmarks, for one of them, and for the comparison.
BENCH_FLAGS     ?=
SMALLBANK_FLAGS ?=
TATP_FLAGS      ?=
YCSB_FLAGS      ?=
TPCC_FLAGS      ?=
COMPARE_FLAGS   ?=

# bench-engine, bench-peers: flags for the ratios and the peers programs, and time and selection of the Go benchmarks.
RATIOS_FLAGS ?=
PEERS_FLAGS ?=
BENCHTIME   ?= 1s
BENCH       ?= .

# bench-shapes: flags, such as --only contention, --dir for databases on a disk.
SHAPES_FLAGS ?=

# instructions: flags, such as --workload tatp, --type SendPayment, --transactions 1000.
INSTRUCTIONS_FLAGS ?=

# test, test-full, race, cover: packages of the root module, flags for go test, and how long a run
# may make no progress until it is ended.
PKGS      ?= ./...
TESTFLAGS ?=
SILENCE   ?= 10m
export PKGS SILENCE

# exhaustive: flags for its tests; mutants: which (a pattern of names), and flags.
EXHAUSTIVE_FLAGS ?=
MUTANTS          ?= .
MUTANTS_FLAGS    ?=

# fuzz: time for each fuzz test, and a pattern of their names.
FUZZTIME ?= 10s
FUZZ     ?= .
export FUZZTIME

.PHONY: help
help: ## list the targets (this)
	@echo 'make TARGET [VARIABLE=value ...]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## bin/txnode
	$(GO) build -o bin/txnode ./cmd/txnode

.PHONY: bench
bench: ## SmallBank and TATP on the embedded engine, beside the published figures [BENCH_FLAGS= SMALLBANK_FLAGS= TATP_FLAGS=]
	$(GO) run ./cmd/txnode bench smallbank $(BENCH_FLAGS) $(SMALLBANK_FLAGS)
	$(GO) run ./cmd/txnode bench tatp $(BENCH_FLAGS) $(TATP_FLAGS)
	$(GO) run ./cmd/txnode compare $(COMPARE_FLAGS)

.PHONY: bench-cluster
bench-cluster: build ## both benchmarks on blades of this process, in shared memory, and behind unix sockets and TCP [BENCH_FLAGS= COMPARE_FLAGS=]
	BENCH_FLAGS='$(BENCH_FLAGS)' COMPARE_FLAGS='$(COMPARE_FLAGS)' sh scripts/bench-cluster.sh bin/txnode

.PHONY: bench-all
bench-all: bench ## make bench, then every workload of YCSB on an ordered table, and TPC-C [BENCH_FLAGS= YCSB_FLAGS= TPCC_FLAGS=]
	for w in a b c d e f; do $(GO) run ./cmd/txnode bench ycsb --workload $$w --table ordered $(BENCH_FLAGS) $(YCSB_FLAGS) || exit; done
	$(GO) run ./cmd/txnode bench tpcc $(BENCH_FLAGS) $(TPCC_FLAGS)

.PHONY: bench-engine
bench-engine: ## the engine against its verbs and other Go stores, as ratios, then the Go benchmarks [RATIOS_FLAGS= PEERS_FLAGS= BENCH=pattern BENCHTIME=1s]
	$(GO) run ./benchmarks/ratios $(RATIOS_FLAGS)
	cd benchmarks/peers && $(GO) run . $(PEERS_FLAGS)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -timeout 30m ./rdma/... ./memory/... ./index/... ./log/... ./occ/... ./txn/...

.PHONY: bench-peers
bench-peers: ## the engine beside other Go stores: SmallBank, TATP, TPC-C, ranges of 1 M rows; 10 M rows against 100,000 [PEERS_FLAGS=]
	cd benchmarks/peers && $(GO) run . $(PEERS_FLAGS)
	cd benchmarks/peers && $(GO) run . --workload tpcc --stores txnode,sharded-map,badger,sqlite $(PEERS_FLAGS)
	cd benchmarks/peers && $(GO) run . --workload rows --stores txnode,badger,pebble,btree --threads 1,2 $(PEERS_FLAGS)
	cd benchmarks/peers && $(GO) run . --workload rows --stores txnode --rows 100000,10000000 $(PEERS_FLAGS)

.PHONY: bench-servers
bench-servers: ## SmallBank of txnode on blades in processes of their own beside Redis and PostgreSQL, which it starts and ends [PEERS_FLAGS=]
	cd benchmarks/peers && $(GO) run . --workload smallbank --stores txnode-unix,txnode-tcp,txnode-shm,redis,postgres $(PEERS_FLAGS)

.PHONY: bench-pgo
bench-pgo: ## the same ratios as compiled with a profile of the engine: what a program gains that does so [RATIOS_FLAGS=]
	@profile=$$(mktemp) && trap 'rm -f "$$profile"' EXIT && \
	$(GO) run ./benchmarks/ratios --rounds 1 --txns 30000000 --cpuprofile "$$profile" && \
	$(GO) run -pgo="$$profile" ./benchmarks/ratios $(RATIOS_FLAGS)

.PHONY: bench-shapes
bench-shapes: ## many keys, contention, inserts and deletes, directories, durable commits: time and memory [SHAPES_FLAGS=]
	$(GO) run ./benchmarks/shapes $(SHAPES_FLAGS)

.PHONY: instructions
instructions: ## what a processor executes for a transaction, by function, counted one by one [INSTRUCTIONS_FLAGS=]
	$(GO) run ./benchmarks/instructions $(INSTRUCTIONS_FLAGS)

.PHONY: test
test: ## gofmt, go vet, all packages with a first slice of seeds and schedules, -race where goroutines meet [TESTFLAGS= PKGS=./...]
	@sh scripts/test.sh quick $(TESTFLAGS)

.PHONY: test-full
test-full: ## the same in full length, all modules, and -race for all that has goroutines [TESTFLAGS= PKGS=./...]
	@sh scripts/tool.sh etcd >/dev/null || echo "the tests with a real etcd: SKIPPED, see above"
	@sh scripts/test.sh full $(TESTFLAGS)

# test-cluster: what is there for several processes, and the engine's own tests of them, then chaos.
CLUSTER = ./rdma/tcp/... ./rdma/shm/... ./memory/... ./channel/... ./cluster/... ./cmd/txnode

.PHONY: test-cluster
test-cluster: ## fabrics between processes, catalogs, clusters and commands in full length, then ROUNDS of make chaos [ROUNDS=20 SEED=1]
	@$(MAKE) --no-print-directory test-full PKGS='$(CLUSTER)'
	@$(MAKE) --no-print-directory chaos

# test-rdma: which steps of scripts/rdma/test.sh; none: all of them.
STEPS ?=

.PHONY: test-rdma
test-rdma: ## rdma/ibverbs on kernels with Soft-RoCE in QEMU, without root; downloads 160 MB once [STEPS="conformance ..."]
	@bash scripts/rdma/test.sh $(STEPS)

# simulate: how many seeds, the first of them, the faults that they draw (all, or stop, lose, ...), and more flags for txnode sim seeds.
SEEDS          ?= 20000
FROM           ?= 1
FAULTS         ?= none
SIMULATE_FLAGS ?=

.PHONY: simulate
simulate: ## the engine on schedules drawn from seeds, on the simulated RNIC; stops at a violation [SEEDS=20000 FROM=1 FAULTS=all SIMULATE_FLAGS=]
	@$(GO) run ./cmd/txnode sim seeds --seeds $(SEEDS) --from $(FROM) --faults $(FAULTS) $(SIMULATE_FLAGS)

# figures: a pattern of the commands whose tables are printed.
FIGURES ?= .

.PHONY: figures
figures: ## the tables of docs/simulator-*.md, printed anew by the program; tens of minutes for all [FIGURES='figure 14']
	$(GO) run ./benchmarks/figures -only '$(FIGURES)' docs/simulator-*.md

.PHONY: operate
operate: build ## what docs/incidents.md says, run as it stands there: a cluster with TLS, rotations, losses, restarts, a full disk, an old catalog
	@bash scripts/operate.sh bin/txnode docs/incidents.md

.PHONY: exhaustive
exhaustive: ## every schedule of small cases: stops at every verb, and of the recovery; pairs, and two processes, in every order [EXHAUSTIVE_FLAGS="-run TestStops"]
	cd occ/exhaustive && $(GO) test -count 1 -timeout 0 -full $(EXHAUSTIVE_FLAGS)
	cd occ/recovery && $(GO) test -count 1 -timeout 0 -full $(EXHAUSTIVE_FLAGS)
	cd txn/orders && $(GO) test -count 1 -timeout 0 -full $(EXHAUSTIVE_FLAGS)

.PHONY: mutants
mutants: ## wrong versions of the protocol, each of which a test has to catch [MUTANTS=pattern MUTANTS_FLAGS="-quick -show"]
	$(GO) run ./internal/mutant/hunt -only '$(MUTANTS)' $(MUTANTS_FLAGS)

.PHONY: race
race: ## all tests under the race detector, in full length [TESTFLAGS= PKGS=./...]
	@sh scripts/test.sh race $(TESTFLAGS)

# crash: how many writers are killed, how many of them around the loss of a blade, how many
# seeds of losses of power, and the first seed.
KILLS  ?= 300
LOSSES ?= 0
POWERS ?= 300
ROUNDS ?= 20
SEED   ?= 1

.PHONY: crash
crash: ## processes that write to a database are killed with SIGKILL, or lose power, and what they leave is checked [KILLS=300 LOSSES=0 POWERS=300 SEED=1]
	$(GO) test ./txn/crashtest -run 'TestKill|TestPower' -count=1 -v -timeout 0 -kills $(KILLS) -losses $(LOSSES) -powers $(POWERS) -seed $(SEED)

# chaos: where the catalog is: in a process of txnode serve, or in an etcd. NET: whether each process is in a network namespace of its
# own, where the host can do it; 0: all are on unix sockets.
CATALOG ?= serve
NET     ?= 1

.PHONY: chaos
chaos: ## a cluster of processes that are killed, stopped or cut off, with slow links and full disks, and what is there afterwards [ROUNDS=20 SEED=1 CATALOG=etcd NET=0]
	$(if $(filter-out serve etcd,$(CATALOG)),$(error CATALOG is $(CATALOG): serve or etcd))
	$(if $(filter etcd,$(CATALOG)),@sh scripts/tool.sh etcd >/dev/null)
	$(GO) test ./cmd/txnode -run 'TestChaos$$' -count=1 -v -timeout 0 -chaos.rounds $(ROUNDS) -chaos.seed $(SEED) -chaos.net=$(NET) $(if $(filter etcd,$(CATALOG)),-chaos.etcd)

.PHONY: histories
histories: ## a history of several processes that are cut off catalog, blades or both, for times around every deadline, held against the checkers [ROUNDS=20 SEED=1 CATALOG=etcd]
	$(if $(filter etcd,$(CATALOG)),@sh scripts/tool.sh etcd >/dev/null)
	$(GO) test ./cmd/txnode -run 'TestHistories$$' -count=1 -v -timeout 0 -chaos.rounds $(ROUNDS) -chaos.seed $(SEED) $(if $(filter etcd,$(CATALOG)),-chaos.etcd)

.PHONY: etcd
etcd: ## the path of an etcd for the tests that need a real one (make test-full, make chaos): that of PATH, or Debian's in ./bin
	@sh scripts/tool.sh etcd

.PHONY: fuzz
fuzz: ## every fuzz test, one after the other [FUZZTIME=10s FUZZ=pattern]
	@sh scripts/fuzz.sh '$(FUZZ)'

.PHONY: cover
cover: ## coverage per package over all tests, lines in cover.html [TESTFLAGS= PKGS=./...]
	@sh scripts/cover.sh $(TESTFLAGS)

.PHONY: lint
lint: ## golangci-lint over every module, by .golangci.yml; CI fails on findings
	@sh scripts/lint.sh

.PHONY: docs-check
docs-check: ## the pages: links, commands and tests that they name, examples, line lengths, sizes (a part of make test)
	$(GO) test -count 1 -v -run 'TestRepository|TestOperate' ./internal/docscheck
	$(GO) test -count 1 -v -run 'TestPages|TestGuide' ./txn

.PHONY: fmt
fmt: ## format all Go files
	@"$$($(GO) env GOROOT)/bin/gofmt" -l -w .

.PHONY: clean
clean: ## remove bin, profiles and reports (saved benchmark results stay)
	rm -rf bin
	rm -f cover.out cover.html cover.log
