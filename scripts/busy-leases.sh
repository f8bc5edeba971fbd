#!/usr/bin/env bash
# Whether processes of a cluster keep their leases on a machine with ten times more to do than it can: a catalog, two blades, and programs with
# transactions run beside busy loops, all on this host. A process that loses its lease is ended by others, or registers anew, and both begin an epoch.
# Ends with 1 if the epoch has moved, or a program has failed.
# usage: busy-leases.sh PATH-OF-TXNODE [SECONDS [LEASE]]     PROGRAMS=3 LOOPS=(10 for each processor)
set -eu
bin=$(realpath "${1:?the path of txnode is missing}")
seconds=${2:-60} lease=${3:-2s}
programs=${PROGRAMS:-3} loops=${LOOPS:-$((10 * $(nproc)))}
dir=$(mktemp -d)
all=()
ended() { for p in "${all[@]}"; do kill "$p" 2>/dev/null || true; done; wait 2>/dev/null || true; rm -rf "$dir"; }
trap ended EXIT
chmod 700 "$dir"
"$bin" serve --listen "unix:$dir/catalog" --catalog "$dir/c" --memory 0 >"$dir/catalog.log" 2>&1 & all+=($!)
for b in 0 1; do
	"$bin" serve --listen "unix:$dir/b$b" --memory 512MiB >"$dir/b$b.log" 2>&1 & all+=($!)
done
until "$bin" cluster init --catalog "unix:$dir/catalog" --blade "unix:$dir/b0" --blade "unix:$dir/b1" >"$dir/init" 2>&1; do sleep 0.2; done
bench() { "$bin" bench smallbank --cluster "unix:$dir/catalog" --lease "$lease" --accounts 1000 --threads 2 --no-save "$@"; }
epoch() { "$bin" cluster status "unix:$dir/catalog" -o json 2>/dev/null | grep -o '"epoch": *[0-9]*' | head -n 1 | grep -o '[0-9]*$'; }
bench --duration 1s >"$dir/load" 2>&1 || { cat "$dir/load"; exit 1; } # loads the data
for _ in $(seq "$loops"); do (while :; do :; done) & all+=($!); done
running=()
for i in $(seq "$programs"); do bench --duration "${seconds}s" >"$dir/p$i" 2>&1 & running+=($!); all+=($!); done
until grep -q . <(epoch) && [ "$("$bin" cluster status "unix:$dir/catalog" 2>/dev/null | grep -c 'process')" -ge 1 ]; do sleep 0.5; done
sleep $((seconds / 4))
before=$(epoch); sleep $((seconds / 2)); after=$(epoch)
failed=0
for i in "${!running[@]}"; do wait "${running[$i]}" || { failed=$((failed + 1)); tail -n 5 "$dir/p$((i + 1))"; }; done
echo "lease $lease, $programs programs beside $loops busy loops on $(nproc) processors, $((seconds / 2)) s: epoch $before before, $after after; $failed programs failed"
grep -hi 'alive\|taken for dead\|rejoined' "$dir"/p* | sort | uniq -c | head -n 10 || true
[ "$before" = "$after" ] && [ "$failed" = 0 ]
