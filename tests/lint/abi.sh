#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# abi.sh ROOT LIBRARY [--update]: the library's ABI is the one recorded in tests/lint/hearth.abi,
# or has grown, and the record has the new names. --update writes the record.
#
# LIBRARY may be the archive: it is linked here as the shared library would be.
set -eu
root=$1 library=$2 record=$1/tests/lint/hearth.abi
command -v abidw >/dev/null || { echo "skip: no abigail-tools"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
case $library in
*.a)
	# What the archive leaves to others is resolved when a program is linked, not here.
	abi=$(sed -nE 's/.*define HEARTH_VERSION +"(0\.[0-9]+|[1-9][0-9]*)\..*/\1/p' "$root/include/hearth/version.h")
	[ -n "$abi" ] || { echo "include/hearth/version.h has no version that can be read"; exit 1; }
	sed "s/@HEARTH_ABI@/$abi/" "$root/client/hearth.map.in" >"$tmp/hearth.map"
	"${CC:-cc}" -shared -o "$tmp/libhearth.so" -Wl,-soname,"libhearth.so.$abi" \
		-Wl,--version-script="$tmp/hearth.map" \
		-Wl,--whole-archive "$library" -Wl,--no-whole-archive
	library=$tmp/libhearth.so
	;;
esac
# Public headers say what belongs to the ABI; where the sources lie does not. (Given
# as --header-file they would have to be named as the compiler was told to find them.)
update=${3:-}
abidw --no-show-locs --no-corpus-path --no-comp-dir-path --no-elf-needed --drop-private-types \
	--exported-interfaces-only --headers-dir "$root/include/hearth" \
	"$library" | sed -E "s#path='[^']*/(client|core)/#path='\1/#" >"$tmp/now.abi"
if [ "$update" = --update ]; then
	cp "$tmp/now.abi" "$record"
	exit 0
fi
[ -e "$record" ] || { echo "skip: no record yet; write it with $0 ROOT LIBRARY --update"; exit 77; }
# Of symbols that have other versions abidiff compares no types, and says nothing of it. What the library takes from others,
# which libabigail 2.6 lists too, has versions of theirs.
versions() {
	sed '/<undefined-elf-/,/<\/undefined-elf-/d' "$1" |
		grep -oE "<elf-symbol .* version='[^']*'|<elf-symbol name='[^']*'" | sed "s/.* version=//; s/.* name=.*/none/" | sort -u
}
[ "$(versions "$record")" = "$(versions "$tmp/now.abi")" ] ||
	{ echo "the record's symbols have the versions $(versions "$record"), the library's $(versions "$tmp/now.abi")"; exit 1; }
abidiff --no-show-locs "$record" "$tmp/now.abi" && exit 0
echo "the ABI has changed. Where that is meant: $0 ROOT LIBRARY --update, and say it in CHANGELOG.md"
exit 1
