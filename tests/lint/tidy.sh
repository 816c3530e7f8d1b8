#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tidy.sh ROOT BUILD: clang-tidy, as .clang-tidy says, over everything but the tests.
set -eu
cd "$1"
command -v clang-tidy >/dev/null || { echo "skip: no clang-tidy"; exit 77; }
clang-tidy --version | grep -q 'version 14\.' ||
	{ echo "skip: the checks are those of clang-tidy 14, and this is another"; exit 77; }
build=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
find core transport replication loader engine daemon client meeting cli examples -name '*.c' |
	sort |
	while read -r file; do # what this build has: a backend without its library is left out
		grep -q "/$file\"" "$build/compile_commands.json" || continue
		case $file in # an example knows public headers alone; who defines hth_fail() must
			examples/*) echo "$file" >>"$tmp/plain" ;;
			*) if grep -qE '^int hth_(fail|while)\(' "$file"; then
				echo "$file" >>"$tmp/plain"
			else
				echo "$file" >>"$tmp/ours"
			fi ;;
		esac
	done
bad=0
# The analyzer gives a function up after so many states: its default, 225,000, costs twice the time.
set -- -P 2 -n 4 clang-tidy --quiet -p "$build" --extra-arg=-Wno-unknown-warning-option \
	--extra-arg=-fno-sanitize=all --extra-arg=-Xclang --extra-arg=-analyzer-config \
	--extra-arg=-Xclang --extra-arg=max-nodes=100000
xargs "$@" <"$tmp/plain" >"$tmp/found" 2>"$tmp/errors" || bad=1
xargs "$@" --extra-arg=-include --extra-arg="$PWD/tests/lint/analyzer.h" \
	<"$tmp/ours" >>"$tmp/found" 2>>"$tmp/errors" || bad=1
[ $bad = 0 ] && exit 0
grep -h 'error: ' "$tmp/found" "$tmp/errors" | sort -u
echo "the paths that lead there: clang-tidy -p $build FILE"
exit 1
