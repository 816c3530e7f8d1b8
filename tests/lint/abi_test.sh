#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# abi_test.sh ABI_SH CC: the comparison sees a field inserted, an argument changed, a function gone
# and symbols of another version, and has nothing to say about a private struct.
set -eu
lint=$1 cc=$2
command -v abidw >/dev/null || { echo "skip: no abigail-tools"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/include/hearth" "$tmp/tests/lint"
bad=0

# library PUBLIC_FIELDS ARGUMENT PRIVATE_FIELDS [alone]
library() {
	two='int hearth_two(void) { return 2; }'
	[ "${4:-}" != alone ] || two=
	echo "struct hearth_a { $1 }; struct hearth;
	int hearth_one(struct hearth *h, struct hearth_a *a, $2 n); int hearth_two(void);" \
		>"$tmp/include/hearth/a.h"
	echo "#include <hearth/a.h>
	struct hearth { $3 };
	int hearth_one(struct hearth *h, struct hearth_a *a, $2 n) { return h && a && n; }
	$two" >"$tmp/a.c"
	# Debug information says where a header lies as the compiler was told, and that may be relative.
	(cd "$tmp/tests" && "$cc" -g -shared -fPIC "-I${include:-$tmp/include}" -o "$tmp/libhearth.so" ../a.c \
		-Wl,-soname,libhearth.so.0.1 ${map:+"-Wl,--version-script=$map"})
}

expect() {
	"$lint" "$tmp" "$tmp/libhearth.so" >"$tmp/said" 2>&1 && rc=0 || rc=1
	[ "$rc" = "$1" ] || { echo "wanted $1: $2"; cat "$tmp/said"; bad=1; }
}

library 'int x, y;' int 'int p;'
"$lint" "$tmp" "$tmp/libhearth.so" --update
expect 0 "the same"
library 'int x, y;' int 'char p[9]; int q;'
expect 0 "a private struct"
library 'int x, z, y;' int 'int p;'
expect 1 "a field inserted"
library 'int x, y;' long 'int p;'
expect 1 "an argument changed"
library 'int x, y;' int 'int p;' alone
expect 1 "a function gone"
echo 'HEARTH_0.1 { global: hearth_*; local: *; };' >"$tmp/map"
map=$tmp/map
library 'int x, y, z;' int 'int p;'
expect 1 "a field appended, and symbols of another version than the record's"
map=
include=../include
library 'int x, y;' int 'int p;'
"$lint" "$tmp" "$tmp/libhearth.so" --update
library 'int x, z, y;' int 'int p;'
expect 1 "a field inserted, headers by a relative path"
exit $bad
