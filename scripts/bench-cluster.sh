#!/bin/sh
# SmallBank and TATP with blades in this process, in shared memory and behind sockets: make bench-cluster. Two threads in one
# process, or two processes of one thread each; blades and catalog are processes of their own, on the same processors.
#
# BENCH_FLAGS go to every benchmark.
set -eu
bin=$1
dir=$(mktemp -d "${TMPDIR:-/tmp}/txnode.XXXXXX")
shm=$(mktemp -d /dev/shm/txnode.XXXXXX 2>/dev/null) || shm=$dir/shm
daemons=
end() {
	for p in $daemons; do kill "$p" 2>/dev/null || :; done
	wait
	rm -rf "$dir" "$shm"
}
trap end EXIT
trap 'exit 130' INT TERM
export TXNODE_HISTORY="$dir/history.db"

# serve ARGUMENTS: one more daemon.
serve() {
	"$bin" serve "$@" >>"$dir/log" &
	daemons="$daemons $!"
}

# cluster NAME BLADE BLADE: waits until all serve, and creates the database.
cluster() {
	serve --listen "unix:$dir/$1.catalog" --catalog memory --memory 0
	tries=0
	until "$bin" cluster init --catalog "unix:$dir/$1.catalog" --blade "$2" --blade "$3" >>"$dir/log" 2>"$dir/err"; do
		tries=$((tries + 1))
		if [ $tries -gt 100 ]; then
			cat "$dir/err" >&2
			exit 1
		fi
		sleep 0.1
	done
}

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

for name in a b; do serve --shm "$shm" --name $name --memory 4GiB; done
cluster shm "shm:$shm/a" "shm:$shm/b"
bench shared-memory --threads 1 --processes 2 --cluster "unix:$dir/shm.catalog"
for p in $daemons; do kill "$p"; done
wait
daemons=

for name in a b; do serve --listen "unix:$dir/$name" --memory 4GiB; done
cluster unix "unix:$dir/a" "unix:$dir/b"
bench unix-sockets --threads 1 --processes 2 --cluster "unix:$dir/unix.catalog"
for p in $daemons; do kill "$p"; done
wait
daemons=

for name in a b; do serve --listen tcp:127.0.0.1:0 --memory 4GiB; done
tries=0
until [ "$(grep -c 'serves tcp:' "$dir/log")" -eq 2 ]; do
	tries=$((tries + 1))
	[ $tries -le 100 ] || { cat "$dir/log" >&2; exit 1; }
	sleep 0.1
done
# shellcheck disable=SC2046
cluster tcp $(sed -n 's/.*serves \(tcp:[0-9.:]*\).*/\1/p' "$dir/log")
bench tcp-loopback --threads 1 --processes 2 --cluster "unix:$dir/tcp.catalog"

for w in smallbank tatp; do
	"$bin" compare "in-process-$w" "shared-memory-$w" "unix-sockets-$w" "tcp-loopback-$w" ${COMPARE_FLAGS:-}
done
