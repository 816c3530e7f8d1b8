#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD LIBDIR CC: install, move, and use the result through find_package (C
# and C++), through pkg-config, and as the programs.
set -eu
build=$1 libdir=$2 cc=$3
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# step WHAT COMMAND...: quiet, but for the log of one that fails.
step() {
	what=$1
	shift
	"$@" >"$tmp/log" 2>&1 || { echo "consumer: $what failed"; cat "$tmp/log"; exit 1; }
}

step install cmake --install "$build" --prefix "$tmp/first"
mv "$tmp/first" "$tmp/moved" # whoever wrote down the prefix fails now
export LD_LIBRARY_PATH="$tmp/moved/$libdir"
export PKG_CONFIG_PATH="$tmp/moved/$libdir/pkgconfig"

step find_package cmake -S "$here" -B "$tmp/build" -G Ninja -DCMAKE_PREFIX_PATH="$tmp/moved"
step build cmake --build "$tmp/build"
step consumer_c "$tmp/build/consumer_c"
step consumer_cxx "$tmp/build/consumer_cxx"

# shellcheck disable=SC2046 # the flags are words
step pkg-config "$cc" -std=c17 -o "$tmp/consumer_pc" "$here/main.c" \
	$(pkg-config --cflags --libs --static hearth)
step consumer_pc "$tmp/consumer_pc"

# A library of another version in the same place: the loader refuses it by name. (An archive is none.)
if [ -e "$tmp/moved/$libdir/libhearth.so" ]; then
	mkdir "$tmp/other"
	abi=$(readelf -dW "$tmp/moved/$libdir/libhearth.so" | sed -nE 's/.*SONAME.*\[libhearth\.so\.([0-9.]+)\]/\1/p')
	echo 'HEARTH_9.9 { *; };' >"$tmp/other/map"
	nm -D --defined-only "$tmp/moved/$libdir/libhearth.so" | sed -nE 's/.* T (hearth_[a-z_0-9]+)@.*/int \1(void) { return 0; }/p' |
		sed 's/^/int &/; s/^int \(int [a-z_0-9]*(void)\).*/\1; &/; s/; int int/; int/' >"$tmp/other/a.c"
	step "another version" "$cc" -shared -fPIC -o "$tmp/other/libhearth.so.$abi" "$tmp/other/a.c" \
		"-Wl,-soname,libhearth.so.$abi" "-Wl,--version-script=$tmp/other/map"
	if LD_LIBRARY_PATH="$tmp/other" "$tmp/build/consumer_c" >"$tmp/log" 2>&1 ||
		! grep -q "version .HEARTH_$abi. not found" "$tmp/log"; then
		echo "consumer: a library of another version is not refused by name:"
		cat "$tmp/log"
		exit 1
	fi
fi

step "hearth --help" "$tmp/moved/bin/hearth" --help
step "hearthd --help" "$tmp/moved/bin/hearthd" --help
[ -n "$(ls "$tmp/moved/$libdir/hearth")" ] || { echo "no modules are installed"; exit 1; }
[ -e "$tmp/moved/include/hearth/hearth.h" ] || { echo "no headers are installed"; exit 1; }
for page in man1/hearth-ls.1 man3/hearth_save_begin.3 man8/hearthd.8; do
	[ -e "$tmp/moved/share/man/$page" ] || { echo "no manual page $page is installed"; exit 1; }
done
for script in bash-completion/completions/hearth zsh/site-functions/_hearth; do
	[ -s "$tmp/moved/share/$script" ] || { echo "no $script is installed"; exit 1; }
done
sed -nE 's/^HEARTH_API .*\b(hearth_[a-z_0-9]+)\(.*/\1/p' "$tmp"/moved/include/hearth/*.h \
	>"$tmp/calls"
[ "$(wc -l <"$tmp/calls")" -gt 80 ] || { echo "the headers have too few calls"; exit 1; }
while read -r call; do
	[ -e "$tmp/moved/share/man/man3/$call.3" ] || { echo "man 3 $call finds no page"; exit 1; }
done <"$tmp/calls"
[ ! -e "$tmp/moved/include/hearth/internal" ] || { echo "internal headers are installed"; exit 1; }
[ -z "$(find "$tmp/moved" -name '*strictfi*')" ] || { echo "a provider for tests is installed"; exit 1; }
