#!/bin/sh
# Runs every fuzz test of the module for a while, one after the other, and fails
# when any of them found an input. New ones are found by themselves.
#
#   FUZZTIME=10s scripts/fuzz.sh [pattern of names, default all]
#
# A failing input is kept by go test under testdata/fuzz of its package; commit
# it with the fix, and every later 'go test' tries it.
set -eu

cd "$(dirname "$0")/.."

fuzztime=${FUZZTIME:-10s}
pattern=${1-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./...); do
	package=./${package#"$PWD"/}
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$package"/*_test.go | sed "s|^|$package |"
done | sort -u >"$work/all"
awk -v pattern="$pattern" '$2 ~ pattern' "$work/all" >"$work/targets"

total=$(wc -l <"$work/targets" | tr -d ' ')
if [ "$total" -eq 0 ]; then
	echo "no fuzz test matches '$pattern'; there are$(awk '{ printf " %s", $2 }' "$work/all")" >&2
	exit 1
fi
echo "$total fuzz tests, $fuzztime each"

# One attempt; its output is in $work/out. Inputs of new coverage are not made smaller, which could take all of the time.
attempt() {
	go test -timeout 0 -run '^$' -fuzz "^$2\$" -fuzztime "$fuzztime" -fuzzminimizetime 1x "$1" >"$work/out" 2>&1 </dev/null
}

number=0
failed=
while read -r package target; do
	number=$((number + 1))
	printf '[%d/%d] %s %s: ' "$number" "$total" "$package" "$target"
	result=ok
	if ! attempt "$package" "$target"; then
		result=FAIL
		# go test now and then reports its own deadline as a failure, without an
		# input that fails (golang.org/issue/75804); only that is tried again.
		if grep -q 'context deadline exceeded' "$work/out" && ! grep -q 'Failing input written' "$work/out"; then
			attempt "$package" "$target" && result='ok (second attempt)'
		fi
	fi
	echo "$result; $(sed -n 's/.*\(execs: [0-9]*\).*/\1/p' "$work/out" | tail -n 1)"
	if [ "$result" = FAIL ]; then
		sed 's/^/    /' "$work/out"
		failed="$failed $target"
	fi
done <"$work/targets"

if [ -n "$failed" ]; then
	echo "$total fuzz tests, failed:$failed"
	exit 1
fi
echo "$total fuzz tests, none found a failing input"
