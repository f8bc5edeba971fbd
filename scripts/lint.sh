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
# examine WHERE DIRECTORY ARGUMENT...
examine() {
	where=$1 directory=$2
	shift 2
	echo "golangci-lint in $where ..."
	code=0
	(cd "$directory" && "$lint" run --allow-parallel-runners --config "$config" "$@") || code=$?
	case $code in
	0) ;;
	1) [ "$status" = 2 ] || status=1 ;;
	*)
		echo "golangci-lint has failed in $where, with code $code" >&2
		status=2
		;;
	esac
}
for module in . $(find . -mindepth 2 -name go.mod -not -path '*/testdata/*' -exec dirname {} \; | sort); do
	examine "$module" "$module" "$@" ./...
done

# What calls libibverbs, where there are a C compiler and the headers: the system's, or those that
# make test-rdma has unpacked.
headers=${RXE_CACHE:-$HOME/.cache/txnode-rdma}/dev/usr/include
if echo '#include <infiniband/verbs.h>' | ${CC:-cc} -I"$headers" -E - >/dev/null 2>&1; then
	export CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$headers"
	examine "rdma/ibverbs with the tag ibverbs" . "$@" --build-tags ibverbs ./rdma/ibverbs ./cmd/txnode
else
	echo "rdma/ibverbs with the tag ibverbs: SKIPPED, there is no C compiler, or no libibverbs-dev"
fi
exit "$status"
