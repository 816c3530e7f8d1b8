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

seen() { # WHAT WORDS FILE: groff and the compiler are asked about the edited file alone
	"$root/tests/lint/manual.py" "$tmp" "$build" "${3##*/}" >"$tmp/said" 2>&1 && rc=0 || rc=1
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
	seen "$2" "$3" "$1"
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
# Section 3
wait=docs/man/hearth_wait.3 include=include/hearth
expect $wait 's/^int hearth_cancel(.*/int hearth_cancel(struct hearth_handle *handle);/' \
	"the header has 'int hearth_cancel("
expect $wait 's/^int hearth_cancel(/int hearth_cancel_all(/' \
	'no header has the call hearth_cancel_all()'
expect $wait 's/^int hearth_cancel(/int hearth_cancel_all(/' 'the call hearth_cancel is in 0 pages'
expect $wait '/^\.SH NAME/,/^\.SH SYN/s/hearth_cancel, //' 'NAME has not hearth_cancel'
expect $wait '/^\.SH NAME/,/^\.SH SYN/s/hearth_cancel, /&hearth_stop, /' \
	'SYNOPSIS has not hearth_stop()'
expect $wait 's/^    uint32_t degraded;/    uint64_t degraded;/' \
	'the header has not this layout of struct hearth_status'
expect $wait 's/^    HEARTH_SEALED = 10,/    HEARTH_SEALED = 11,/' \
	'the header has not this layout of enum hearth_level'
expect $wait 's/^struct hearth_save_id {/struct hearth_save_number {/' \
	'the layout struct hearth_save_id is in 0 pages'
expect $wait 's/HEARTH_STATUS_INIT/HEARTH_STATUS_BEGIN/g' \
	'no page of section 3 names HEARTH_STATUS_INIT'
expect $wait 's/HEARTH_STATUS_INIT/HEARTH_STATUS_BEGIN/g' \
	'no header and no option has HEARTH_STATUS_BEGIN'
expect $wait 's/^\.BR hearth_cancel ()/.BR hearth_stop ()/' \
	'no header and no option has hearth_stop'
expect $wait 's/^\.B HEARTH_EFAILED/.B HEARTH_EBROKEN/' 'HEARTH_EBROKEN is no code'
expect $wait '/^\.SH BLOCKING/,/^\.SH/s/hearth_wait/hearth_test/' \
	'hearth_wait() may wait, and BLOCKING does not name it'
expect $wait '/^\.SH BLOCKING/,/^\.SH/s/hearth_wait/hearth_test/' 'BLOCKING names hearth_test()'
expect docs/man/hearth_view_open.3 's/100 ms for/200 ms for/' 'BLOCKING has not the limits of'
expect $wait 's/^\.SH THREADS/.SH NOTES/' 'there is no THREADS'
expect $wait 's/hearth_test(handle, &now, NULL)/hearth_test(handle, now)/' \
	'EXAMPLES does not compile'
expect $include/keep.h 's/^HEARTH_API int hearth_keep_un/HEARTH_API int hearth_keep_all(int);\n&/' \
	'the call hearth_keep_all is in 0 pages'
expect $include/read.h 's/^#define HEARTH_LOAD_PARTIAL.*/&\n#define HEARTH_LOAD_ALL 2u/' \
	'no page of section 3 names HEARTH_LOAD_ALL'
expect $include/types.h 's/^    HEARTH_DROP = 10,.*/&\n    HEARTH_LEAVE = 20,/' 'names HEARTH_LEAVE'
expect $include/types.h 's/^struct hearth_status {/struct hearth_new {\n    int f;\n};\n&/' \
	'the layout struct hearth_new is in 0 pages'
expect $include/error.h 's/^    X(HEARTH_EUNKNOWN, -304,.*/    X(HEARTH_EODD, -305, "odd") \\\n&/' \
	'names HEARTH_EODD'
# shellcheck disable=SC2016 # backquotes, as they stand in the table
expect docs/api.md 's/^| `hearth_wait()` |/| `hearth_wait()`, `hearth_test()` |/' \
	'hearth_test() may wait, and BLOCKING'

mv "$man/hearth-ls.1" "$man/hearth-list.1"
seen 'a page of another name' 'there is no page hearth-ls.1' hearth-list.1
seen 'a page of another name' 'hearth has no such command' hearth-list.1
mv "$man/hearth-list.1" "$man/hearth-ls.1"
exit $bad
