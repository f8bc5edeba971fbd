#!/bin/sh
# Prints the path of a development tool, after installing it into ./bin when it
# is missing there or was built at another version or by another Go release.
#
#   scripts/tool.sh golangci-lint
#   scripts/tool.sh etcd           that of PATH, or else the program of Debian's etcd-server
#
# Nothing outside ./bin and Go's own caches is changed. Messages go to stderr.
set -eu

cd "$(dirname "$0")/.."

case "${1-}" in
golangci-lint)
	package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	version=v2.15.0
	;;
etcd)
	if command -v etcd; then
		exit
	fi
	bin=$PWD/bin
	if [ ! -x "$bin/etcd" ]; then
		work=$(mktemp -d)
		trap 'rm -rf "$work"' EXIT
		cd "$work"
		fetch() { apt-get -o Acquire::Retries=0 -o Acquire::http::Timeout=20 "$@" >&2; }
		# The program alone: an installed package begins a service.
		if ! { fetch download etcd-server || { fetch update && fetch download etcd-server; }; } || ! dpkg-deb -x etcd-server_*.deb . >&2; then
			echo "could not download etcd: put one of version 3.4 or later into PATH" >&2
			exit 1
		fi
		mkdir -p "$bin"
		mv usr/bin/etcd "$bin/etcd"
	fi
	echo "$bin/etcd"
	exit
	;;
*)
	echo "usage: scripts/tool.sh golangci-lint|etcd" >&2
	exit 2
	;;
esac

bin=$PWD/bin
stamp=$bin/.$1.version
# The Go release counts, because golangci-lint refuses modules that ask for a
# newer one than it was built with.
wanted="$version $(go env GOVERSION)"

if [ ! -x "$bin/$1" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
	echo "installing $1 $version into ./bin (once; about a minute with a cold build cache) ..." >&2
	mkdir -p "$bin"
	# GOFLAGS of the caller (-race, -mod, -tags) are meant for this module, not for the tool. Without debugging information as
	# in scripts/test.sh, which then finds the standard library compiled.
	if ! GOFLAGS=-gcflags=all=-dwarf=false GOBIN=$bin go install "$package@$version" >&2; then
		echo "could not install $1: 'go install $package@$version' failed; is the Go module proxy reachable?" >&2
		exit 1
	fi
	echo "$wanted" >"$stamp"
fi
echo "$bin/$1"
