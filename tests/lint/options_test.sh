#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# options_test.sh ROOT BUILD: the lint sees each kind of thing that differs from the table.
set -eu
root=$1 build=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0
mkdir -p "$tmp/core"
cp -r "$root/docs" "$root/include" "$root/adapters" "$tmp"

seen() { # WHAT WORDS
	"$root/tests/lint/options.py" "$tmp" "$build" >"$tmp.said" 2>&1 && rc=0 || rc=1
	if [ "$rc" = 0 ] || ! grep -qF -- "$2" "$tmp.said"; then
		echo "not seen: $1"
		cat "$tmp.said"
		bad=1
	fi
	rm -f "$tmp.said"
}

# expect FILE EDIT WORDS: with this edit of sed the lint says so
expect() {
	cp "$tmp/$1" "$tmp/kept"
	sed -i "$2" "$tmp/$1"
	cmp -s "$tmp/$1" "$tmp/kept" && { echo "nothing is edited: $2"; bad=1; }
	mv "$tmp/kept" "$tmp/kept.txt"
	seen "$2" "$3"
	mv "$tmp/kept.txt" "$tmp/$1"
}

# added FILE TEXT WORDS: with this file
added() {
	printf '%s\n' "$2" >"$tmp/$1"
	seen "$2" "$3"
	rm "$tmp/$1"
}

"$root/tests/lint/options.py" "$tmp" "$build" || { echo "the copy is not right to begin with"; exit 1; }
man=docs/man/hearth_opts.3 daemon=docs/man/hearthd.8
python=adapters/pytorch/hearth_checkpoint/_ffi.py
expect $man '/^\.BR keep /,/^\.TP/d' 'there is no option keep'
expect $man 's/^\.BR keep /.BR keeps /' 'keeps is no option'
expect $man 's/(1 to 8; default: 1)/(1 to 8; default: 10)/' "copies: 'default: 1' is not there"
expect $man 's/(1 to 15; /(1 to 16; /' "keep: '1 to 15' is not there"
expect $man 's/HEARTH_KEEP/HEARTH_KEEPS/' "keep: 'HEARTH_KEEP' is not there"
expect $man 's/replicas beside/copies beside/' "copies: 'replicas beside the owner's own' is not there"
expect $man 's/auto, never or in_process/auto or never/' "start: 'auto, never or in_process' is not there"
expect $man '/^replicas that PROTECTED/s/The same on all ranks\.//' "min_copies: 'The same on all ranks.'"
expect $man '/^network interface/s/A running engine.*//' "device: 'A running engine must have it.'"
expect $man 's/^\.B HEARTH_LIBRARY/.B HEARTH_LIB/' 'HEARTH_LIB is no option'
expect $daemon '/^\.BI .*key.*file/,/^\.TP/d' 'there is no flag --key-file'
expect $daemon 's/(default: 86400)/(default: 3600)/' "--linger: 'default: 86400' is not there"
expect $daemon 's/^log to standard error, too/log to the terminal/' "--foreground: 'log to standard error, too'"
expect $daemon 's/\\-\\-foreground/\\-\\-loud/' '--loud is no flag'
expect include/hearth/opts.h 's/\(uint32_t inflight_mib;.*\)0: 64/\10: 32/' 'inflight_mib: the default is 64, not 32'
expect $python 's/("stall_ms", U32), //' 'Opts has no field stall_ms'
expect $python 's/("spare_bytes", U64)/("spare_bytes", U32)/' 'Opts.spare_bytes is U32, not U64'
expect $python 's/("open_ms", U32)/("opens_ms", U32)/' 'Opts.opens_ms is no field'
expect $python 's/("root", STR), ("job", STR)/("job", STR), ("root", STR)/' 'in another order'
expect $python 's/"trusted": 10/"trusted": 11/' 'NETWORK is not'
expect $python 's/"int2": 66, //' 'DTYPES has not of int2'
expect docs/api.md 's/provider/carrier/g' 'provider, which a running engine must have'
added core/a.c 'x = getenv("HEARTH_NO_SUCH");' 'core/a.c: nobody knows the variable HEARTH_NO_SUCH'
added core/a.py 'os.environ.get("HEARTH_NO_SUCH")' 'core/a.py: nobody knows the variable HEARTH_NO_SUCH'
added core/a.sh 'HEARTH_NO_SUCH=1 hearthd' 'core/a.sh: nobody knows the variable HEARTH_NO_SUCH'
# shellcheck disable=SC2016 # quotes of the text
added core/a.md 'set `HEARTH_NO_SUCH=1`' 'core/a.md: nobody knows the variable HEARTH_NO_SUCH'
exit $bad
