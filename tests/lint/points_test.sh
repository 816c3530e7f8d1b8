#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# points_test.sh POINTS_SH ROOT CC: a library with our points is seen, also where its symbols are
# stripped; one without is not.
set -eu
lint=$1 root=$2 cc=$3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

# library FLAG...
library() {
	"$cc" -std=c17 -D_GNU_SOURCE -I"$root/include" -I"$root" "$@" -shared -fPIC -o "$tmp/lib.so" \
		"$root/engine/driver/stop_point.c"
}

expect() {
	"$lint" "$tmp/lib.so" >"$tmp/said" 2>&1 && rc=0 || rc=1
	[ "$rc" = "$1" ] || { echo "wanted $1: $2"; cat "$tmp/said"; bad=1; }
}

library
expect 0 "without points"
library -DHEARTH_POINTS
expect 1 "with points"
library -DHEARTH_POINTS -s
expect 1 "stripped"
rm "$tmp/lib.so"
expect 1 "a file that is not there"
exit $bad
