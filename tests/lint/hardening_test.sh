#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hardening_test.sh LINT CC: each property left out of a small program is found by the lint.
set -eu
lint=$1 cc=$2
command -v readelf >/dev/null || { echo "skip: no readelf"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/main.c" <<'C'
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
	char text[8];

	strcpy(text, argv[argc - 1]);
	return puts(text) < 0;
}
C

# build FLAG...: the program with everything, but for what the flags undo
build() {
	"$cc" -w -O2 -fPIE -pie -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 \
		-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -o "$tmp/main" "$tmp/main.c" "$@"
}

# found WORDS FLAG...
found() {
	words=$1
	shift
	build "$@"
	if "$lint" "$tmp/main" >"$tmp/out"; then
		echo "nothing was found with $*"
		exit 1
	fi
	grep -q "$words" "$tmp/out" || { echo "with $* it said:"; cat "$tmp/out"; exit 1; }
}

build
"$lint" "$tmp/main"
found 'not position independent' -fno-pie -no-pie
found 'no RELRO' -Wl,-z,norelro
found 'binds late' -Wl,-z,lazy
found 'executable stack' -Wl,-z,execstack
found 'no stack protector' -fno-stack-protector
found '_FORTIFY_SOURCE' -U_FORTIFY_SOURCE
