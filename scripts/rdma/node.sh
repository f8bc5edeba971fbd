#!/bin/sh
# In one of the two guests of guests.sh, beside the programs txnode and ibverbs.test and the files
# of TLS: the first or the second guest of a scene.
#
#   node.sh SCENE first|second
set -eu
export TXNODE_RDMA=rxe1/1/1 TXNODE_HISTORY=/tmp/history.db NO_COLOR=1
export TXNODE_TLS_CERT=guest.crt TXNODE_TLS_KEY=guest.key TXNODE_TLS_CA=ca.crt
with="--rdma $TXNODE_RDMA --lease 10s --tls-cert guest.crt --tls-key guest.key --tls-ca ca.crt"
catalog=tcp:10.1.0.1:7100

up() { # LOG, until its daemon serves
	i=0
	until grep -q serve "$1" && ! grep -q rror "$1"; do
		i=$((i + 1))
		[ $i -lt 300 ] || { cat "$1"; exit 1; }
		sleep 0.1
	done
	head -1 "$1"
}
blade() { # ADDRESS
	./txnode serve --listen "rdma:$1" --memory 128MiB >"/tmp/$1.log" 2>&1 &
	up "/tmp/$1.log"
}
catalog() {
	./txnode serve --listen $catalog --catalog memory --memory 0 >/tmp/catalog.log 2>&1 &
	up /tmp/catalog.log
}
init() { # ADDRESS..., once all blades are there
	for b; do set -- "$@" --blade "rdma:$b"; shift; done
	i=0
	until ./txnode cluster init --catalog $catalog --segment-size 2MiB --log-area 256KiB $with "$@" >/tmp/init 2>&1; do
		i=$((i + 1))
		grep -q 'does not answer\|refused\|timed out\|no route' /tmp/init && [ $i -lt 60 ] || { cat /tmp/init; exit 1; }
		sleep 1
	done
	cat /tmp/init
}
killed() { # until the other guest has lost power
	i=0
	until [ -e /out/killed ]; do
		i=$((i + 1))
		[ $i -lt 120 ] || { echo "the other guest was not killed"; exit 1; }
		sleep 1
	done
}

case $1-$2 in
suite-first)
	TXNODE_RDMA_REMOTE=10.1.0.2:7200 ./ibverbs.test -test.run 'TestDeviceRemote$' -test.timeout 0 ${SUITE_FLAGS:-}
	;;
suite-second)
	TXNODE_RDMA_SERVE=10.1.0.2:7200 ./ibverbs.test -test.run 'TestDeviceHost$' -test.timeout 0
	;;

# The second guest has a blade, and loses power while SmallBank runs in the first.
blade-first)
	catalog
	blade 10.1.0.1:7000
	blade 10.1.0.1:7001
	init 10.1.0.1:7000 10.1.0.1:7001 10.1.0.2:7000
	echo "--- doctor"
	./txnode doctor $catalog $with
	echo "--- smallbank, all blades"
	bank="./txnode bench smallbank --cluster $catalog --threads 1 --coroutines 4 --accounts 200 --warmup 1ms $with"
	$bank --txns 200
	echo "--- smallbank, a blade loses power"
	touch /out/ready
	$bank --duration "${SECONDS_OF_BANK:-30}s" --txns 0
	[ -e /out/killed ] || { echo "the other guest was not killed in time"; exit 1; }
	echo "--- status"
	./txnode cluster status $catalog $with | tee /tmp/status || true # it is not whole: a blade is away
	grep -q 'rdma:10.1.0.2:7000.*\(down\|silent\)' /tmp/status || { echo "no blade is down"; exit 1; }
	echo "--- check"
	./txnode check $catalog $with
	;;
blade-second)
	blade 10.1.0.2:7000
	sleep 1000
	;;

# The second guest has a client, and loses power while it writes what the first one does, too.
client-first)
	catalog
	blade 10.1.0.1:7000
	blade 10.1.0.1:7001
	init 10.1.0.1:7000 10.1.0.1:7001
	touch /out/serving
	TXNODE_RDMA_WRITER="$catalog first /tmp/end" ./ibverbs.test -test.run 'TestGuestWriter$' >/tmp/first.journal 2>&1 &
	writer=$!
	killed
	had=$(grep -c '^committed first' /tmp/first.journal)
	echo "--- the client of the other guest is gone; this one has committed $had"
	i=0
	until [ "$(grep -c '^committed first' /tmp/first.journal)" -gt $((had + 100)) ]; do
		i=$((i + 1))
		[ $i -lt 90 ] || { echo "the client that is left makes no progress"; tail /tmp/first.journal; exit 1; }
		sleep 1
	done
	touch /tmp/end
	wait $writer || { cat /tmp/first.journal; exit 1; }
	grep -v '^committed' /tmp/first.journal || true
	echo "--- audit"
	TXNODE_RDMA_AUDIT="$catalog /tmp/first.journal /out/second.journal" ./ibverbs.test -test.run 'TestGuestAudit$' -test.v
	echo "--- check"
	./txnode check $catalog $with
	;;
client-second)
	TXNODE_RDMA_WRITER="$catalog second /tmp/never" ./ibverbs.test -test.run 'TestGuestWriter$'
	;;
*)
	echo "node.sh: no scene $1, or no guest $2"
	exit 2
	;;
esac
