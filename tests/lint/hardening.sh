#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hardening.sh FILE...: what is installed is position independent, has full RELRO, no executable
# stack, stack protectors, and the checked variants of the C library's copying functions.
set -eu
command -v readelf >/dev/null || { echo "skip: no readelf"; exit 77; }
bad=0

# want FILE LACK PATTERN READELF_OPTION...
want() {
	file=$1 lack=$2 pattern=$3
	shift 3
	readelf -W "$@" "$file" | grep -qE "$pattern" || { echo "$file $lack"; bad=1; }
}

for file; do
	want "$file" "is not position independent" 'Type: *DYN' -h
	want "$file" "has no RELRO" GNU_RELRO -l
	want "$file" "binds late, so its RELRO is partial" 'BIND_NOW|FLAGS_1.*NOW' -d
	want "$file" "has an executable stack" 'GNU_STACK.* RW ' -l
	want "$file" "has no stack protector" __stack_chk_fail --dyn-syms
	want "$file" "is built without _FORTIFY_SOURCE" ' __(mem|str|v?s?n?printf|v?f?printf|read|pread|fdelt)[a-z]*_chk' --dyn-syms
done
exit $bad
