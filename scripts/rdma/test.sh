#!/usr/bin/env bash
# The tests of rdma/ibverbs on a real kernel with Soft-RoCE, in QEMU guests: make test-rdma.
#
#   scripts/rdma/test.sh [STEP...]     STEP: conformance, faults, torn, engine, cluster, backports,
#                                      guests: by default all of these; or full
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
	local rc=0
	"$@" </dev/null || rc=$?
	if [ $rc = 0 ]; then
		echo "--- $name: passed, $((SECONDS - began)) s"
	else
		echo "--- $name: FAILED, status $rc, $((SECONDS - began)) s"
		failed+=("$name")
	fi
}

# What the guests run, built once.
built=0
build() {
	[ $built = 0 ] || return 0
	local began=$SECONDS
	go test -tags ibverbs -c -o "$work/ibverbs.test" ./rdma/ibverbs
	go build -tags ibverbs -o "$work/txnode" ./cmd/txnode
	built=1
	echo "--- build: $((SECONDS - began)) s"
}

# suite NAME KERNEL OPTION... -- FLAG...: tests of rdma/ibverbs in a guest
suite() {
	local name=$1 kernel=$2 options=()
	shift 2
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	shift
	fill "$kernel"
	build
	run "$name, kernel $(cat "$RXE_CACHE/base-$kernel.ok")" bash $guest -k "$kernel" -x "${options[@]}" \
		"$work/ibverbs.test" -test.timeout 0 "$@"
}
one=(-e TXNODE_RDMA=rxe0/1/1)
two=(-p -e TXNODE_RDMA=rxp0/1/0,rxp1/1/0)

# The conformance suite on a device of the kernel.
conformance() { suite conformance "$1" -t 590 "${one[@]}" -- -test.short -test.run 'TestDevice$'; }

# The engine on it: races of transactions, SmallBank and TATP with their books and histories.
step_engine() {
	suite engine stable -t 590 "${one[@]}" -- -test.short -test.run 'TestDeviceIsolation|TestDeviceSmallBank|TestDeviceTATP'
}

# Lost packets, a link that is down, a device that is removed, between two devices.
faults() { suite faults "$1" -t 300 "${two[@]}" -e TXNODE_RDMA_FAULTS=v1,rxp1 -- -test.run TestDeviceFaults; }

# With two processors the emulator tears words. The suite must see it: else it is blind.
step_torn() {
	fill stable
	build
	torn() {
		local rc=0
		RXE_ACCEL=tcg bash $guest -c 2 -t 200 "${one[@]}" "$work/ibverbs.test" -test.short -test.count 10 -test.failfast \
			-test.run 'TestDevice$/1-words-of-pages-are-not-torn' >"$work/torn" 2>&1 || rc=$?
		grep -q 'FAIL: TestDevice/1-words-of-pages' "$work/torn" && [ $rc = 1 ] && return
		cat "$work/torn"
		echo "words are torn, and the suite does not see it"
		return 1
	}
	run "torn words are seen" torn
}

# A cluster whose blades are processes of their own, by the program.
step_cluster() {
	fill stable
	build
	run "cluster" bash $guest -x -t 580 -f "$work/txnode" scripts/rdma/cluster.sh
}

# Two guests, of which one loses power.
step_guests() {
	fill stable
	build
	run "guests: a blade is lost" bash scripts/rdma/guests.sh blade "$work"
	run "guests: a client is lost" bash scripts/rdma/guests.sh client "$work"
}

# The suite in full length: on one device, between two, and between two guests, with blades in
# processes of their own.
step_full() {
	suite "conformance in full length" stable -t 3000 "${one[@]}" -- -test.run 'TestDevice$'
	suite "conformance in full length, two devices" stable -t 3000 "${two[@]}" -- -test.run 'TestDevice$'
	LIMIT=3000 run "conformance in full length, two guests" bash scripts/rdma/guests.sh suite "$work"
}

step_faults() { faults stable; }
step_conformance() { conformance stable; }
step_backports() { conformance bpo; faults bpo; }

for step in "${@:-conformance faults torn engine cluster backports guests}"; do
	for s in $step; do "step_$s"; done
done
echo "test-rdma: $SECONDS s"
if [ ${#failed[@]} -gt 0 ]; then
	printf 'test-rdma: FAILED: %s\n' "${failed[@]}"
	exit 1
fi
echo "test-rdma: passed"
