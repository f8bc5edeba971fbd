#!/bin/sh
# The test suite. All tests run even when an earlier step fails; the last lines are the
# runner's summary over everything that ran.
#
#   scripts/test.sh quick|full|race [flags for go test ...]
#
# quick: gofmt and go vet; every package with -short, a first slice of seeds and schedules; then the
# packages in which goroutines meet, under the race detector, with -short.
# full: the same in full length, and the nested modules, and everything with goroutines of its own
# under the race detector. The nested modules are vetted by the linter alone: go vet would look at all
# of SQLite first, for minutes.
# race: the race detector's part alone, in full length.
#
# No step has a limit in minutes: internal/testrun ends what makes no progress. Environment:
# PKGS (packages of the root module, default ./...), SILENCE (how long no test may end, default 10m),
# VETTED (set: the linter has run, which does what go vet does).
set -eu

cd "$(dirname "$0")/.."

mode=${1-quick}
[ $# -eq 0 ] || shift
case $mode in
quick | full | race) ;;
*)
	echo "usage: scripts/test.sh quick|full|race [flags for go test ...]" >&2
	exit 2
	;;
esac

pkgs=${PKGS:-./...}

# Of two packages at a time: those that take long begin first, so that none goes on alone at the end.
ordered=$pkgs
if [ "$pkgs" = ./... ]; then
	ordered="./txn ./occ/recovery ./occ/exhaustive ./txn/crashtest ./index/race ./rdma/tcp ./cmd/txnode/command ./..."
fi

# The packages whose tests are shorter with -short. Those of the others are run once by make test and make test-full
# together, since Go keeps the results of the first.
shortened() {
	go list -f '{{.ImportPath}} {{.Dir}}' $ordered | while read -r pkg dir; do
		if grep -qE 'testing[.]Short|(fabric|index|etcd)test"' "$dir"/*_test.go 2>/dev/null; then echo "$pkg"; fi
	done
}

# Nested modules, such as benchmarks/peers, which is one so that nobody else
# downloads its dependencies.
nested() {
	find . -mindepth 2 -name go.mod -not -path '*/testdata/*' -not -path './bin/*' -exec dirname {} \; | sort
}

# What is worth the race detector's price. Quick: where goroutines meet on shared memory. Else all
# but the command line, the tools that read source code, and the packages in whose tests one
# goroutine runs their schedules step by step, or the whole of a simulation. Single tests of
# this kind leave themselves out (internal/raced). Full, which has 20 minutes, leaves out what is of benchmarks
# alone, but their runner and the engine that they run, and the simulator; make race does not.
race_pkgs() {
	# shellcheck disable=SC2086 # a list of patterns
	case $1 in
	quick) go list $ordered | grep -E '/(rdma|rdma/region|rdma/inproc|memory|memory/embedded|history|index/addrcache|txn)$' ;;
	full) race_pkgs race | grep -v -E '/benchmarks/(channelbench|figures|re(port|ference).*|shapes|smallbank|tatp|tpcc|workload.*|ycsb)$|/rdma/sim$' ;;
	*) go list $ordered | grep -v -e '/cmd/' -e '/internal/depcheck$' -e '/internal/docscheck$' -e '/internal/mutant' -e '/internal/eintr$' -e '/occ/exhaustive$' -e '/occ/recovery$' \
		-e '/benchmarks/simbench' -e '/benchmarks/hashbench$' -e '/benchmarks/instructions$' -e '/rdma/sim/verbs$' \
		-e '/rdma/sim/calibrate$' -e '/check$' -e '/verify$' -e '/index/race$' -e '/txn/orders$' ;;
	esac
}

# No test looks at debugging information, which is an eighth of what compiling costs. .ci/run has the
# linter compile the same way, so that it is done once.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-gcflags=all=-dwarf=false"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unhappy=

if why=$(scripts/have-race.sh); then
	WITH_RACE=yes
else
	WITH_RACE=
	echo "race detector: SKIPPED, $why"
	if [ "$mode" = race ]; then
		exit 1
	fi
fi

if [ "$mode" != race ]; then
	echo "gofmt ..."
	"$(go env GOROOT)/bin/gofmt" -l . >"$work/gofmt"
	if [ -s "$work/gofmt" ]; then
		echo "not formatted (run make fmt):"
		sed 's/^/  /' "$work/gofmt"
		unhappy="$unhappy gofmt"
	fi
	if [ -z "${VETTED-}" ]; then
		echo "go vet ..."
		# shellcheck disable=SC2086
		go vet $pkgs || unhappy="$unhappy go-vet"
	fi
fi

# The commands of the run, each behind a "::" (internal/testrun).
flags="-vet=off -timeout=0"
short=-short
[ "$mode" = quick ] || short=
steps=
if [ "$mode" != race ]; then
	steps=":: go test -json $flags $* $ordered"
	if [ "$mode" = quick ]; then
		shortened >"$work/short"
		# shellcheck disable=SC2046,SC2086 # lists of packages
		rest=$(echo $(go list $ordered | grep -vxFf "$work/short" || true))
		steps=
		[ ! -s "$work/short" ] || steps=":: go test -json $flags -short $* $(echo $(cat "$work/short"))"
		[ -z "$rest" ] || steps="$steps :: go test -json $flags $* $rest"
	fi
	if [ "$mode" = full ] && [ "$pkgs" = ./... ]; then
		for module in $(nested); do
			steps="$steps :: dir=$module go test -json $flags $* ./..."
		done
	fi
fi
if [ -n "$WITH_RACE" ]; then
	[ "$mode" = race ] || short=-short
	# shellcheck disable=SC2046 # a list of packages
	raced=$(echo $(race_pkgs "$mode"))
	[ -z "$raced" ] || steps="$steps :: label=race env CGO_ENABLED=1 go test -race -json $flags $short $* $raced"
	if [ "$mode" != quick ] && [ "$pkgs" = ./... ]; then # its other tests go step by step
		steps="$steps :: label=race env CGO_ENABLED=1 go test -race -json $flags $short $* -run ^TestSuite\$ ./index/race"
	fi
fi
if [ -z "$steps" ]; then
	echo "nothing to test in PKGS=$pkgs" >&2
	exit 1
fi

echo "tests${WITH_RACE:+, and [race] under the race detector} ..."
go build -o "$work/testrun" ./internal/testrun
status=0
# shellcheck disable=SC2086 # words
"$work/testrun" -silence "${SILENCE:-10m}" $steps || status=$?
if [ -n "$unhappy" ]; then
	echo "not only tests count; these failed before them:$unhappy" >&2
	status=1
fi
exit "$status"
