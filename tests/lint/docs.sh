#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs.sh ROOT BUILD [DOCS]: what the docs name is there. Of failure-model.md each test and scenario, of
# api.md each call, constant, option, file and program; and api.md names each call of the headers.
# shellcheck disable=SC2013 # none of these lines has a blank
set -euf # no globs: names are patterns for another list
root=$1 build=$2 docs=${3:-$1/docs}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

# quoted FILE PATTERN: what stands in backquotes, or in indented code, and is all of PATTERN
# shellcheck disable=SC2016 # backquotes, as they stand in the text
quoted() {
	grep -o '`[^`]*`' "$1" | tr -d '`' | grep -xE "$2" | sort -u || true
}

# none_in LIST GLOB
none_in() {
	while read -r one; do
		# shellcheck disable=SC2254 # it is a pattern
		case $one in $2) return 1 ;; esac
	done <"$1"
}

missing() {
	echo "$1: there is no $2"
	bad=1
}

ctest --test-dir "$build" -N | sed -n 's/.*Test *#[0-9]*: //p' >"$tmp/tests"
"$root/tests/cluster/run" --build "$build" --list | sed 's,/.*,,' | sort -u >"$tmp/scenarios"
for name in $(quoted "$docs/design/failure-model.md" '[a-z]+(\.[a-z0-9_*-]+)+'); do
	none_in "$tmp/tests" "$name" && missing failure-model.md "test $name"
done
for name in $(quoted "$docs/design/failure-model.md" '[a-z0-9*]+(-[a-z0-9*]+)+'); do
	none_in "$tmp/scenarios" "$name" && missing failure-model.md "scenario $name"
done

api=$docs/api.md
for call in $(grep -oE 'hearth_[a-z_]+\(' "$api" | tr -d '(' | sort -u); do
	grep -rqw "$call" "$root/include/hearth" --include='*.h' || missing api.md "call $call()"
done
for call in $(find "$root/include/hearth" -name '*.h' -exec cat {} + | tr '\n' ' ' | grep -oE 'HEARTH_API [^;]*;' | grep -oE '\bhearth_[a-z_0-9]+\(' |
	tr -d '(' | sort -u); do
	grep -qw "$call" "$api" || { echo "api.md does not name $call() of the headers"; bad=1; }
done
for name in $(grep -oE '\bHEARTH_[A-Z_]*[A-Z]\b' "$api" | sort -u); do
	grep -rqw "$name" "$root/include/hearth" "$root/core/base/options.def" || missing api.md "$name"
done
for option in $(grep -oE '\bopts\.[a-z_]+' "$api" | cut -d. -f2 | sort -u) \
	$(quoted "$api" '[a-z]+(_[a-z]+)+( = .*)?' | cut -d' ' -f1); do
	grep -rqw "$option" "$root/include/hearth" "$root/core/base/options.def" || missing api.md "option $option"
done
for file in $(quoted "$api" '[a-z_]+/[a-z_/-]+\.[a-z]+' | grep -v '^hearth/'); do
	[ -e "$root/$file" ] || missing api.md "file $file"
done
for program in $(grep -oE 'bin/[a-z_]+' "$api" | sort -u); do
	[ -x "$build/$program" ] || missing api.md "program $program"
done
exit $bad
