#!/bin/sh
# golangci-lint over every module, by the configuration in .golangci.yml. Ends
# with 0 if there are no findings, with 1 if there are, and with 2 if the linter
# could not be installed or did not work.
#
#   scripts/lint.sh [flags for golangci-lint run ...]
set -eu

cd "$(dirname "$0")/.."

lint=$(scripts/tool.sh golangci-lint) || exit 2
config=$PWD/.golangci.yml
status=0
for module in . $(find . -mindepth 2 -name go.mod -not -path '*/testdata/*' -exec dirname {} \; | sort); do
	echo "golangci-lint in $module ..."
	code=0
	(cd "$module" && "$lint" run --allow-parallel-runners --config "$config" "$@" ./...) || code=$?
	case $code in
	0) ;;
	1) [ "$status" = 2 ] || status=1 ;;
	*)
		echo "golangci-lint has failed in $module, with code $code" >&2
		status=2
		;;
	esac
done
exit "$status"
