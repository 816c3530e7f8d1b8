#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# manual_test.sh ROOT BUILD: the lint sees each kind of mistake in a manual page.
set -eu
root=$1 build=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
cp -r "$root/docs" "$root/include" "$tmp"
man=$tmp/docs/man

seen() { # WHAT WORDS
	"$root/tests/lint/manual.py" "$tmp" "$build" >"$tmp/said" 2>&1 && rc=0 || rc=1
	if [ "$rc" = 0 ] || ! grep -qF -- "$2" "$tmp/said"; then
		echo "not seen: $1"
		cat "$tmp/said"
		bad=1
	fi
}

# expect FILE EDIT WORDS: with this edit of sed the lint names it
expect() {
	cp "$tmp/$1" "$tmp/kept"
	sed -i "$2" "$tmp/$1"
	cmp -s "$tmp/$1" "$tmp/kept" && { echo "nothing is edited: $2"; bad=1; }
	seen "$2" "$3"
	mv "$tmp/kept" "$tmp/$1"
}

"$root/tests/lint/manual.py" "$tmp" "$build" >"$tmp/said" && rc=0 || rc=$?
[ "$rc" != 77 ] || { cat "$tmp/said"; exit 77; }
[ "$rc" = 0 ] || { echo "the copy is not right to begin with"; cat "$tmp/said"; exit 1; }

ls=docs/man/hearth-ls.1
expect $ls 's/^\.TH HEARTH-LS/.TH HEARTH-LIST/' 'the title is not HEARTH-LS 1'
expect $ls '/^\.TH/s/Hearth [0-9]/Hearth 9/' 'the title has not version'
expect $ls 's/^\.SH OPTIONS/.SH SWITCHES/' 'its sections are not those of the others'
expect $ls 's/^\.PP/.PQ/' "macro 'PQ' not defined"
expect $ls 's/^\.BR hearth\\-verify (1)/.BR hearth\\-prove (1)/' 'there is no page hearth-prove(1)'
expect $ls "s/^Without\$/& $(printf 'x%.0s' $(seq 100))/" '100 are the most'
expect $ls 's/^as protected, with/nobody knows, with/' "'nobody': name the actor"
expect $ls 's/list jobs, and/list all jobs, and/' 'NAME is not'
expect $ls 's/^\.RI \[ JOB \]/.RI [ NAME ]/' 'SYNOPSIS is not'
expect $ls 's/^\.B \\-\\-env$/.B \\-\\-all/' 'OPTIONS has no --env'
expect $ls 's/^\.B \\-\\-env$/.B \\-\\-all/' 'hearth ls has no --all'
expect $ls 's/^\.SH EXAMPLES/.SH NOTES/' 'there is no EXAMPLES'
expect docs/man/hearth.1 's/^list jobs, and/list all jobs, and/' \
	'COMMANDS is not what hearth --help prints'
expect docs/man/hearth.1 '/^\.B 4$/,/^\.TP/d' 'hearth.1 has no exit status 4'
mv "$man/hearth-ls.1" "$man/hearth-list.1"
seen 'a page of another name' 'there is no page hearth-ls.1'
seen 'a page of another name' 'hearth has no such command'
mv "$man/hearth-list.1" "$man/hearth-ls.1"
exit $bad
