#!/bin/sh
# golangci-lint over every module, by the configuration in .golangci.yml.
set -eu

cd "$(dirname "$0")/.."

lint=$(scripts/tool.sh golangci-lint)
config=$PWD/.golangci.yml
status=0
for module in . $(find . -mindepth 2 -name go.mod -not -path '*/testdata/*' -exec dirname {} \; | sort); do
	echo "golangci-lint in $module ..."
	(cd "$module" && "$lint" run --config "$config" "$@" ./...) || status=1
done
exit "$status"
