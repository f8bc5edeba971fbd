#!/usr/bin/env bash
# Runs what docs/incidents.md says, block by block, in a new directory: those behind a line "<!-- operate -->", and, where file systems
# can be mounted, those behind "<!-- operate: mount -->". It ends at the first command that fails, and ends all daemons that it has started.
# usage: operate.sh PATH-OF-TXNODE [PAGE]
set -u
bin=$(realpath "${1:?the path of txnode is missing}")
page=$(realpath "${2:-docs/incidents.md}")
command -v openssl >/dev/null || { echo "operate: openssl is missing" >&2; exit 1; }
dir=$(mktemp -d) || exit 1
mkdir "$dir/bin" "$dir/run" && ln -s "$bin" "$dir/bin/txnode" || exit 1

can_mount() { mkdir "$dir/try" && mount -t tmpfs -o size=1m none "$dir/try" 2>/dev/null && umount "$dir/try"; }
mount=no; can_mount && mount=yes

# One program of all blocks. Each tells which it is before it runs.
awk -v mount="$mount" '
	function quoted(s) { gsub(/\047/, "\047\\\047\047", s); return "\047" s "\047" }
	/^## / { title = substr($0, 4) }
	/^<!-- operate(: mount)? -->$/ { next_is = 1; skip = /mount/ && mount == "no"; next }
	/^```sh$/ && next_is { inside = 1; next_is = 0; n++; if (skip) print "skipped " n " " quoted(title); else print "step " n " " quoted(title); next }
	/^```$/ && inside { inside = 0; next }
	inside && !skip { print "line=" quoted($0); print }
	inside && skip { next }
' "$page" | awk '
	# "line=" only before commands at the left margin that are no part of a function: a block may have functions.
	/^line=/ { held = $0; next }
	{ if (held != "" && depth == 0 && $0 !~ /^[a-z0-9]+\(\)/) print held; held = ""
	  if ($0 ~ /^[a-z0-9]+\(\) \{/ && $0 !~ /\}([ ;]|$)/) depth = 1
	  print
	  if ($0 ~ /^\}/) depth = 0 }
' >"$dir/program" || exit 1
grep -q '^step ' "$dir/program" || { echo "operate: $page has no blocks to run" >&2; exit 1; }

cat >"$dir/frame" <<'FRAME'
set -eEuo pipefail
began=$SECONDS steps=0 left=0 line=
step() { steps=$((steps + 1)); printf '%4d s  step %d: %s\n' $((SECONDS - began)) "$1" "$2" >&3; }
skipped() { left=$((left + 1)); printf '%4d s  step %d: %s: SKIPPED, no file system can be mounted here\n' $((SECONDS - began)) "$1" "$2" >&3; }
ended() {
	code=$?
	trap - EXIT ERR
	for p in $(jobs -p); do kill -KILL "$p" 2>/dev/null || true; done
	wait 2>/dev/null || true
	mountpoint -q small 2>/dev/null && umount small
	if [ "$code" != 0 ]; then
		printf 'operate: FAILED after %d steps, at: %s\n' "$steps" "$line" >&3
		tail -n 15 ../output >&3
		exit 1
	fi
	printf 'operate: %d steps as the page says, %d skipped, %d s\n' "$steps" "$left" $((SECONDS - began)) >&3
}
trap ended EXIT
trap 'exit 130' INT TERM
FRAME
cd "$dir/run" || exit 1
export PATH="$dir/bin:$PATH" TXNODE_HISTORY="$dir/history.db" PORT=${PORT:-$((20000 + RANDOM % 10000))}
timeout --foreground -k 10 "${LIMIT:-280}" bash -c ". '$dir/frame'; . '$dir/program'" 3>&1 >"$dir/output" 2>&1 </dev/null
code=$?
cd / && if [ -z "${KEEP-}" ]; then rm -rf "$dir"; else echo "kept: $dir"; fi
exit "$code"
