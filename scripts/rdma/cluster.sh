#!/bin/sh
# In a guest of guest.sh, beside the program txnode: a cluster of two blades behind an RDMA device,
# each in a process of its own, with SmallBank and TATP, whose books are checked.
set -eu
export TXNODE_RDMA="${TXNODE_RDMA:-rxe0/1/1}" TXNODE_HISTORY=/tmp/history.db NO_COLOR=1
slow="--lease 60s" # the emulator is slow, and its host may be busy
rounds=${ROUNDS:-1500}

./txnode serve --listen unix:/tmp/catalog --catalog memory --memory 0 >/tmp/catalog.log 2>&1 &
for b in 0 1; do
	./txnode serve --listen "rdma:127.0.0.1:700$b" --memory 128MiB >"/tmp/blade$b.log" 2>&1 &
done
up() { # what, until it serves
	i=0
	until grep -q serve "$1" && ! grep -q rror "$1"; do
		i=$((i + 1))
		[ $i -lt 200 ] || { cat "$1"; exit 1; }
		sleep 0.1
	done
	head -1 "$1"
}
up /tmp/catalog.log; up /tmp/blade0.log; up /tmp/blade1.log
./txnode cluster init --catalog unix:/tmp/catalog --blade rdma:127.0.0.1:7000 --blade rdma:127.0.0.1:7001 \
	--segment-size 4MiB --log-area 256KiB $slow
echo "--- a blade behind a device is reached in no other way"
if ./txnode serve --listen rdma:127.0.0.1:7009 --listen tcp:127.0.0.1:7010; then exit 1; fi
echo "--- explain"
./txnode explain smallbank --cluster unix:/tmp/catalog --accounts 200 --txns 20 --warmup-txns 200 $slow
echo "--- doctor"
./txnode doctor unix:/tmp/catalog $slow
echo "--- smallbank"
./txnode bench smallbank --cluster unix:/tmp/catalog --threads 2 --coroutines 4 --accounts 200 --txns "$rounds" \
	$slow
echo "--- tatp"
./txnode bench tatp --cluster unix:/tmp/catalog --threads 2 --coroutines 4 --subscribers 500 --txns "$rounds" $slow
echo "--- check"
./txnode check unix:/tmp/catalog $slow
