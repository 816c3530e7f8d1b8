#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols_test.sh SYMBOLS_SH CC: the lint sees a stray symbol, a missing entry, a missing SONAME.
set -eu
lint=$1 cc=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

# expect RC KIND SOURCE [FLAGS...]
expect() {
	want=$1 kind=$2
	echo "$3" >"$tmp/a.c"
	shift 3
	"$cc" -shared -fPIC -o "$tmp/libhearth.so" "$tmp/a.c" "$@"
	"$lint" "$kind" "$tmp/libhearth.so" >"$tmp/said" 2>&1 && rc=0 || rc=1
	[ "$rc" = "$want" ] || { echo "$kind: wanted $want: $(cat "$tmp/a.c")"; cat "$tmp/said"; bad=1; }
}

soname=-Wl,-soname,libhearth.so.0.1
echo 'HEARTH_0.1 { *; };' >"$tmp/0.1.map"
echo 'HEARTH_0.2 { *; };' >"$tmp/0.2.map"
map=-Wl,--version-script=$tmp/0.1.map
expect 0 library 'int hearth_version; static int x; int *hearth_a(void) { return &x; }' $soname "$map"
expect 1 library 'int hearth_version, hth_stray;' $soname "$map"
expect 1 library 'int hearth_other;' $soname "$map"
expect 1 library 'int hearth_version;'
expect 1 library 'int hearth_version;' $soname
expect 1 library 'int hearth_version;' $soname "-Wl,--version-script=$tmp/0.2.map"
expect 0 module 'int hth_transport_backend;'
expect 1 module 'int hth_transport_backend, hth_fail;'
expect 1 module 'int hearth_version;'
exit $bad
