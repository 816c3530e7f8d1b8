#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# spdx.sh ROOT: every source, script and build file has its licence in its first three lines.
set -eu
cd "$1"
bad=0
for file in $(find . \( -type d -name build -o -name .git -o -path ./tests/data \) -prune \
	-o -type f \( -name '*.[ch]' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' -o -name '*.in' \
	-o -name CMakeLists.txt -o -name '*.supp' -o -name '*.pml' -o ! -name '*.*' \) -print | sort); do
	case $file in
	*.in | */LICENSE | */fuzz/corpus/* | */allowed-skips) continue ;;
	./debian/c* | ./debian/source/format) continue ;; # formats without room for it
	*.*) ;;
	*) head -c 2 "$file" | grep -q '#!' || continue ;; # without suffix: scripts only
	esac
	head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
		{ echo "no SPDX line: $file"; bad=1; }
done
exit $bad
