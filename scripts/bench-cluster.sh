#!/bin/sh
# SmallBank and TATP with blades in this process, in shared memory and behind sockets: make bench-cluster. Two threads in one
# process, or two processes of one thread each; blades and catalog are processes of their own, on the same processors.
#
# BENCH_FLAGS go to every benchmark.
set -eu
bin=$1
dir=$(mktemp -d "${TMPDIR:-/tmp}/txnode.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
export TXNODE_HISTORY="$dir/history.db"

# bench NAME FLAGS: both benchmarks.
bench() {
	name=$1
	shift
	for w in smallbank tatp; do
		"$bin" bench $w --save "$name-$w" "$@" ${BENCH_FLAGS:-} >"$dir/$name-$w" || { cat "$dir/$name-$w"; exit 1; }
		echo "$w, $name: $(sed -n 's/^ *all  *[0-9]*  *\([0-9,]*\) .*/\1/p' "$dir/$name-$w" | head -1) committed/s" >&2
	done
}

bench in-process --threads 2
bench shared-memory --threads 1 --processes 2 --fabric shm
bench unix-sockets --threads 1 --processes 2 --fabric unix
bench tcp-loopback --threads 1 --processes 2 --fabric tcp
for w in smallbank tatp; do
	"$bin" compare "in-process-$w" "shared-memory-$w" "unix-sockets-$w" "tcp-loopback-$w" ${COMPARE_FLAGS:-}
done
