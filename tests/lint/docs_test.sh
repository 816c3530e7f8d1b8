#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs_test.sh ROOT BUILD: the lint sees each kind of thing that is not there.
set -eu
root=$1 build=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

# expect FILE LINE WORDS: with this line added, the lint says so
expect() {
	cp "$root/docs/api.md" "$tmp"
	cp "$root/docs/design/failure-model.md" "$tmp/design"
	printf '%s\n' "$2" >>"$tmp/$1"
	"$root/tests/lint/docs.sh" "$root" "$build" "$tmp" >"$tmp/said" 2>&1 && rc=0 || rc=1
	if [ "$rc" = 0 ] || ! grep -q "no $3" "$tmp/said"; then
		echo "not seen: $2"
		cat "$tmp/said"
		bad=1
	fi
}

mkdir "$tmp/design"
# shellcheck disable=SC2016 # what is quoted is text
{
	expect design/failure-model.md '`ten.no_such_test`' 'test ten.no_such_test'
	expect design/failure-model.md '`lose-nothing-*`' 'scenario lose-nothing-'
	expect api.md '`hearth_no_such_call()`' 'call hearth_no_such_call'
	expect api.md 'HEARTH_NO_SUCH_CODE' 'HEARTH_NO_SUCH_CODE'
	expect api.md '    opts.no_such = 1' 'option no_such'
	expect api.md '`examples/none.c`' 'file examples/none.c'
	expect api.md '    build/release/bin/none' 'program bin/none'
}
# And a call of the headers that the page does not name.
grep -v 'hearth_save_begin' "$root/docs/api.md" >"$tmp/api.md"
if "$root/tests/lint/docs.sh" "$root" "$build" "$tmp" >"$tmp/said" 2>&1 || ! grep -q 'does not name hearth_save_begin()' "$tmp/said"; then
	echo "not seen: a call that is in no document"
	cat "$tmp/said"
	bad=1
fi
exit $bad
