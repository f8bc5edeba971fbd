#!/usr/bin/env bash
# Two guests of guest.sh, joined by a network of their own, of which the second loses power: its
# QEMU is killed. What happens in them is in node.sh.
#
#   scripts/rdma/guests.sh SCENE DIR
#
# SCENE  blade: a blade is lost while SmallBank runs; its books and its history are checked
#        client: a client is lost, and what it was told is committed is there
#        suite: the conformance suite, whose blades are in the second guest; SUITE_FLAGS=-test.short
# DIR    has the programs txnode and ibverbs.test (with the tag ibverbs)
#
# The status is that of the first guest's program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scene=$1 programs=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/txnode-guests.XXXXXX")
mkdir "$work/out1" "$work/out2" "$work/tls"

second='' first=''
say() { # what the guests have said
	sed 's/^/  /' "$work/log1"
	sed 's/^/  second guest: /' "$work/log2" | tail -n "${1:-40}"
}
end() {
	[ -z "$first" ] || say
	for i in 1 2; do # QEMU removes the file when it ends
		[ ! -s "$work/pid$i" ] || kill -9 "$(cat "$work/pid$i")" 2>/dev/null || true
	done
	[ -z "$second" ] || kill "$second" 2>/dev/null || true
	[ -z "$first" ] || kill "$first" 2>/dev/null || true
	wait || true
	rm -rf "$work"
}
trap end EXIT

TXNODE_RDMA_CERTIFICATES=$work/tls "$programs/ibverbs.test" -test.run 'TestMakeCertificates$' >/dev/null

node() { # NUMBER NAME NETWORK
	RXE_NODE=$1 RXE_NET="stream,addr.type=unix,addr.path=$work/net,$3" bash scripts/rdma/guest.sh -x -t "${LIMIT:-300}" \
		-P "$work/pid$1" -o "$work/out$1" -e "SUITE_FLAGS=${SUITE_FLAGS:-}" -f "$programs/txnode" \
		-f "$programs/ibverbs.test" -f "$work/tls/ca.crt" -f "$work/tls/guest.crt" -f "$work/tls/guest.key" \
		scripts/rdma/node.sh "$scene" "$2" >"$work/log$1" 2>&1 </dev/null &
}
node 1 first server=on
first=$!
node 2 second server=off,reconnect-ms=500
second=$!

# until COMMAND succeeds, or the first guest has ended
await() {
	until "$@"; do
		kill -0 "$first" 2>/dev/null || return 0
		sleep 0.2
	done
}
committed() { [ "$(grep -c '^committed second' "$work/log2")" -ge 100 ]; }
lose() {
	[ -s "$work/pid2" ] || return 0 # the first guest has ended, and says why
	kill -9 "$(cat "$work/pid2")"
	rm -f "$work/pid2"
	tr -d '\r' <"$work/log2" >"$work/out1/second.journal"
	touch "$work/out1/killed"
}
case $scene in
blade)
	await test -e "$work/out1/ready"
	sleep 12
	lose
	;;
client)
	await committed
	lose
	;;
esac
rc=0
wait "$first" || rc=$?
first=''
say 10
exit $rc
