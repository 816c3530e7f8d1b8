#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers_test.sh HEADERS_SH INCLUDE: a header that not every caller can compile is seen, and a struct that
# cannot grow, and a version of two minds.
set -eu
lint=$1 real=$2/hearth
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

# header LINE...: a folder of headers, a.h with these lines in it
header() {
	rm -rf "$tmp/hearth"
	mkdir "$tmp/hearth"
	cp "$real/export.h" "$real/init.h" "$tmp/hearth"
	printf '#define HEARTH_VERSION "%s"\n#define HEARTH_VERSION_NUMBER 2003004\n' "${version:-2.3.4}" \
		>"$tmp/hearth/version.h"
	printf '#include <hearth/a.h>\n#include <hearth/version.h>\n' >"$tmp/hearth/hearth.h"
	printf '#ifndef A_H\n#define A_H\n#include <hearth/init.h>\n' >"$tmp/hearth/a.h"
	printf '%s\n' "$@" '#endif' >>"$tmp/hearth/a.h"
}

# expect STATUS TEXT WHAT
expect() {
	rc=0
	"$lint" "$tmp" >"$tmp/said" 2>&1 || rc=$?
	[ "$rc" != 77 ] || rc=0 # what is there was content
	if [ "$rc" != "$1" ] || ! grep -qe "$2" "$tmp/said"; then
		[ "$1$rc" = 00 ] || { echo "wanted $1 and '$2': $3"; cat "$tmp/said"; bad=1; }
	fi
}

sized='HEARTH_SIZED(hearth_a);'
init='#define HEARTH_A_INIT HEARTH_INIT(hearth_a)'
first='struct hearth_a {
	size_t struct_size;'
header "$first int x; };" "$sized" "$init"
expect 0 '' "a good one"
header "$first int x; };" "$sized" '#define HEARTH_A_INIT { .struct_size = sizeof(struct hearth_a) }'
expect 1 'std=c++11' "an initialiser that C++ has not"
header "$first int x; };" "$sized" '#define HEARTH_A_INIT hearth_a_init()'
expect 1 'std=c11' "an initialiser that is no constant in C"
header "$first int x; };" "$sized" "$init" 'static inline int f(int class) { return class; }'
expect 1 'std=c++11' "a name that C++ keeps for itself"
header "$first int x; };" "$sized" "$init" 'static inline int f(int x) { return 0; }'
expect 1 'unused' "a warning"
header "$first uint32_t x; };" "$sized" "$init"
expect 1 'uint32_t' "a header that needs another one before it"
header "$first int x; };"
expect 1 'HEARTH_A_INIT' "no initialiser"
header 'struct hearth_a {
	int x; };'
expect 1 'struct hearth_a does not begin with struct_size' "no size"
version=2.3.5
header "$first int x; };" "$sized" "$init"
expect 1 'HEARTH_VERSION is 2.3.5' "two versions"
exit $bad
