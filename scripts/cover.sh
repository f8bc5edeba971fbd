#!/bin/sh
# Statement coverage per package, counting what the tests of any package reach,
# and in total; every line in cover.html.
#
#   scripts/cover.sh [flags for go test ...]
#
# Environment: PKGS (packages whose tests run, default ./...).
set -eu

cd "$(dirname "$0")/.."

module=$(go list -m)
# shellcheck disable=SC2086 # a list of patterns
go test -vet=off -timeout 0 -coverpkg=./... -coverprofile=cover.out "$@" ${PKGS:-./...} >cover.log 2>&1 || {
	grep -v -e '^ok' -e 'no test files' -e 'coverage: 0.0% of statements' cover.log
	echo "coverage is measured on tests that pass; see above" >&2
	exit 1
}
rm -f cover.log
go tool cover -html=cover.out -o cover.html

# A block shows once per test binary in the profile; it counts as covered when
# any of them reached it. The fields are file:block, statements, executions.
tail -n +2 cover.out | awk -v module="$module/" '
	{ statements[$1] = $2; hits[$1] += $3 }
	END {
		for (block in statements) {
			file = block; sub(/:[^:]*$/, "", file)
			package = file; sub(/\/[^\/]*$/, "", package)
			if (index(package, module) == 1) package = substr(package, length(module) + 1)
			all[package] += statements[block]; total += statements[block]
			if (hits[block] > 0) { covered[package] += statements[block]; reached += statements[block] }
		}
		for (package in all) printf "%6.1f %%  %6d statements  %s\n", 100 * covered[package] / all[package], all[package], package | "sort -k4"
		close("sort -k4")
		printf "%6.1f %%  %6d statements  total; lines in cover.html\n", total ? 100 * reached / total : 0, total
	}'
