#!/bin/sh
# Succeeds when this machine can build with -race; otherwise fails and says on
# stdout why not, in half a sentence. The race detector needs cgo, and with it a
# C compiler and the C library's headers; building an empty program with it is
# the only test that covers all three.
set -u

cd "$(dirname "$0")/.."

cc=$(go env CC)
# CC may carry arguments ("clang -m64"); the first word is the program.
if ! command -v "${cc%% *}" >/dev/null 2>&1; then
	echo "no C compiler: '$cc' not found (install gcc or clang with the C library's headers)"
	exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'package main\n\nfunc main() {}\n' >"$work/main.go"
if ! CGO_ENABLED=1 GOFLAGS=-gcflags=all=-dwarf=false go build -race -o "$work/probe" "$work/main.go" >"$work/why" 2>&1; then
	echo "an empty program does not build with -race: $(head -n 3 "$work/why" | tr '\n' ' ')"
	exit 1
fi
