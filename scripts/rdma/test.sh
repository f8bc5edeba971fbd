#!/usr/bin/env bash
# The tests of rdma/ibverbs on a real kernel with Soft-RoCE, in QEMU guests: make test-rdma.
#
#   scripts/rdma/test.sh [STEP...]     all steps, or some: see below
#
# Packages of Debian are kept in $RXE_CACHE: see guest.sh. Without a network for the first of them,
# or a C compiler, it says SKIPPED, and succeeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

guest=scripts/rdma/guest.sh
skip() { echo "test-rdma: SKIPPED: $*"; exit 0; }
[ "$(uname -sm)" = "Linux x86_64" ] || skip "it needs Linux on amd64"
command -v "${CC:-gcc}" >/dev/null || skip "there is no C compiler"
export RXE_CACHE=${RXE_CACHE:-$HOME/.cache/txnode-rdma}

fill() {
	local rc=0
	bash $guest -k "$1" -b || rc=$?
	case $rc in 0) ;; 77) skip "see above" ;; *) exit "$rc" ;; esac
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$RXE_CACHE/dev/usr/include"

failed=()
# run NAME COMMAND...
run() {
	local name=$1 began=$SECONDS
	shift
	echo "--- $name"
	if "$@" </dev/null; then
		echo "--- $name: passed, $((SECONDS - began)) s"
	else
		echo "--- $name: FAILED, status $?"
		failed+=("$name")
	fi
}

# The conformance suite on a device of the kernel.
conformance() {
	fill "$1"
	go test -tags ibverbs -c -o "$work/ibverbs.test" ./rdma/ibverbs
	run "conformance, kernel $(cat "$RXE_CACHE/base-$1.ok")" \
		bash $guest -k "$1" -x -t 590 -e TXNODE_RDMA=rxe0/1/1 "$work/ibverbs.test" -test.short -test.run 'TestDevice$'
}

# The engine on it: races of transactions, and SmallBank with its books.
step_engine() {
	fill stable
	go test -tags ibverbs -c -o "$work/ibverbs.test" ./rdma/ibverbs
	run "engine" bash $guest -x -t 590 -e TXNODE_RDMA=rxe0/1/1 "$work/ibverbs.test" -test.timeout 580s \
		-test.run 'TestDeviceIsolation|TestDeviceSmallBank'
}

# Lost packets, a link that is down, a device that is removed, between two devices.
faults() {
	fill "$1"
	go test -tags ibverbs -c -o "$work/ibverbs.test" ./rdma/ibverbs
	run "faults, kernel $(cat "$RXE_CACHE/base-$1.ok")" bash $guest -k "$1" -p -x -t 300 \
		-e TXNODE_RDMA=rxp0/1/0,rxp1/1/0 -e TXNODE_RDMA_FAULTS=v1,rxp1 "$work/ibverbs.test" -test.timeout 280s -test.run TestDeviceFaults
}

# A cluster whose blades are processes of their own, by the program.
step_cluster() {
	fill stable
	go build -tags ibverbs -o "$work/txnode" ./cmd/txnode
	run "cluster" bash $guest -x -t 580 -f "$work/txnode" scripts/rdma/cluster.sh
}

step_faults() { faults stable; }
step_conformance() { conformance stable; }
step_backports() { conformance bpo; faults bpo; }

for step in "${@:-conformance faults engine cluster backports}"; do
	for s in $step; do "step_$s"; done
done
if [ ${#failed[@]} -gt 0 ]; then
	printf 'test-rdma: FAILED: %s\n' "${failed[@]}"
	exit 1
fi
echo "test-rdma: passed"
