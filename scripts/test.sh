#!/bin/sh
# The whole test suite: formatting and go vet, every test of every module, then
# the concurrent packages again, short, under the race detector. All tests run
# even when an earlier step fails; the last lines are the runner's summary over
# everything that ran.
#
#   scripts/test.sh [all|race] [flags for go test ...]
#
# "race" runs the race detector's part alone, and in full length. Environment:
# PKGS (packages of the root module, default ./...), TEST_TIMEOUT (per package,
# default 12m).
set -eu

cd "$(dirname "$0")/.."

mode=all
case "${1-}" in
all | race)
	mode=$1
	shift
	;;
stream-all | stream-race)
	mode=$1
	shift
	;;
esac

pkgs=${PKGS:-./...}
timeout=${TEST_TIMEOUT:-12m}

# Nested modules, such as benchmarks/peers, which is one so that nobody else
# downloads its dependencies.
nested() {
	find . -mindepth 2 -name go.mod -not -path '*/testdata/*' -not -path './bin/*' -exec dirname {} \; | sort
}

# What is worth the race detector's price: all but the command line, the tools that
# read source code, and the packages whose tests have no concurrency of their own: one
# goroutine runs their schedules step by step, or the whole of a simulation.
race_pkgs() {
	# shellcheck disable=SC2086 # a list of patterns
	go list $pkgs | grep -v -e '/cmd/' -e '/internal/depcheck$' -e '/occ/exhaustive$' -e '/occ/recovery$' \
		-e '/benchmarks/simbench$' -e '/benchmarks/hashbench$' -e '/benchmarks/instructions$' -e '/rdma/sim/verbs$'
}

# stream writes the events of one 'go test' to stdout and notes its failure in
# $FAILED, for a pipe hides it.
stream() {
	go test -json -vet=off -timeout "$timeout" "$@" || echo "go test $*" >>"$FAILED"
}

stream_race() {
	# The label tells the two runs of a package apart in the report.
	raced=$(race_pkgs) || return 0 # nothing selected that is worth it
	# shellcheck disable=SC2086 # a list of packages
	CGO_ENABLED=1 stream -race "$@" $raced | sed 's/"Package":"\([^"]*\)"/"Package":"\1 [race]"/'
}

case $mode in
stream-all)
	# shellcheck disable=SC2086
	stream "$@" $pkgs
	if [ "$pkgs" = ./... ]; then
		for module in $(nested); do
			(cd "$module" && stream "$@" ./...)
		done
	fi
	if [ -n "$WITH_RACE" ]; then
		stream_race -short "$@"
	fi
	[ ! -s "$FAILED" ]
	exit
	;;
stream-race)
	stream_race "$@"
	[ ! -s "$FAILED" ]
	exit
	;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
FAILED=$work/failed
export FAILED
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
export WITH_RACE

if [ "$mode" = all ]; then
	echo "gofmt ..."
	"$(go env GOROOT)/bin/gofmt" -l . >"$work/gofmt"
	if [ -s "$work/gofmt" ]; then
		echo "not formatted (run make fmt):"
		sed 's/^/  /' "$work/gofmt"
		unhappy="$unhappy gofmt"
	fi
	echo "go vet ..."
	# shellcheck disable=SC2086
	go vet $pkgs || unhappy="$unhappy go-vet"
	for module in $(nested); do
		(cd "$module" && go vet ./...) || unhappy="$unhappy go-vet:$module"
	done
fi

status=0
if runner=$(scripts/tool.sh gotestsum); then
	echo "tests${WITH_RACE:+, and [race] under the race detector} ..."
	"$runner" --format pkgname --format-hide-empty-pkg --raw-command -- sh scripts/test.sh "stream-$mode" "$@" || status=$?
else
	echo "tests, reported by scripts/summary.awk instead ..."
	sh scripts/test.sh "stream-$mode" "$@" >"$work/events" || status=$?
	awk -f scripts/summary.awk "$work/events" || status=$?
fi
if [ -n "$unhappy" ]; then
	echo "not only tests count; these failed before them:$unhappy" >&2
	status=1
fi
exit "$status"
