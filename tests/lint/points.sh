#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# points.sh FILE...: what is installed heeds no test: no point where it stops itself, no call that is
# made to fail, neither by name nor in a text.
set -eu
bad=0
for file; do
	[ -e "$file" ] || { echo "there is no $file"; exit 1; }
	found=$({
		strings -a "$file"
		readelf -W --syms --dyn-syms "$file" 2>/dev/null | awk '{ print $8 }'
	} | grep -E 'HEARTH_STOP_POINT|HEARTH_FAIL_AT|hth_stop_point|made-to-fail|is no stop point' |
		sort -u || true)
	[ -z "$found" ] || { echo "$file is built with HEARTH_POINTS:"; echo "$found"; bad=1; }
done
exit $bad
