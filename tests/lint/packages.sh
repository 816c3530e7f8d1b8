#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# packages.sh ROOT: debian/ and the RPM spec are of the version in include/hearth/version.h. The
# library's package is named after its SONAME, and its symbols file has what the headers declare.
set -eu
cd "$1"
bad=0
say() { echo "packages: $*"; bad=1; }
version=$(sed -nE 's/^.define HEARTH_VERSION +"([0-9.]+)"/\1/p' include/hearth/version.h)
abi=${version%%.*}
[ "$abi" != 0 ] || abi=$(echo "$version" | cut -d. -f1-2)

said=$(sed -nE '1s/^hearth \(([^)]*)\).*/\1/p' debian/changelog)
[ "$said" = "$version" ] || say "debian/changelog begins with $said, version.h says $version"
if [ -e deploy/rpm/hearth.spec ]; then
	said=$(sed -nE 's/^Version: *//p' deploy/rpm/hearth.spec)
	[ "$said" = "$version" ] || say "deploy/rpm/hearth.spec says $said, version.h $version"
fi
grep -qx "Package: libhearth$abi" debian/control ||
	say "debian/control has no package libhearth$abi"
symbols=debian/libhearth$abi.symbols
[ -e "debian/libhearth$abi.install" ] || say "there is no debian/libhearth$abi.install"
[ -e "$symbols" ] || { say "there is no $symbols"; exit 1; }

declared=$(sed -nE 's/^HEARTH_API .*\b(hearth_[a-z_0-9]+)\(.*/\1/p' include/hearth/*.h | sort -u)
listed=$(sed -nE "s/^ (hearth_[a-z_0-9]+)@HEARTH_$abi .*/\1/p" "$symbols" | sort -u)
for name in $declared; do
	echo "$listed" | grep -qx "$name" || say "$symbols has no $name, which the headers declare"
done
for name in $listed; do
	echo "$declared" | grep -qx "$name" || say "$symbols has $name, which no header declares"
done
exit $bad
