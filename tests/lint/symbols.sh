#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols.sh KIND FILE: what others can link to. Names that start with __ are the sanitizers'.
#   library  hearth_ alone, in a shared library and in an archive (where the rest is marked
#            hidden); a shared one has a SONAME, and its symbols
#            are of that version
#   module   its entries, hth_transport_backend and hth_transport_list or hth_engine_…; beside it hearth_ at most
set -eu
kind=$1 file=$2
case $file in
*.a) symbols=--syms ;;
*) symbols=--dyn-syms ;;
esac
visible=$(readelf -W $symbols "$file" |
	awk '($5 == "GLOBAL" || $5 == "WEAK") && $6 == "DEFAULT" && $7 != "UND" { print $8 }' |
	sed 's/@.*//' | grep -vE '^(__|HEARTH_[0-9.]+$)' | sort -u)
case $kind in
library)
	stray=$(echo "$visible" | grep -v '^hearth_' || true) entry='hearth_version'
	case $file in *.so*)
		abi=$(readelf -dW "$file" | sed -nE 's/.*SONAME.*\[libhearth\.so\.([0-9.]+)\]/\1/p')
		[ -n "$abi" ] || { echo "no SONAME"; exit 1; }
		readelf -VW "$file" | grep -qE "Name: HEARTH_$abi( |\$)" ||
			{ echo "its symbols are not of version HEARTH_$abi, as its SONAME says"; exit 1; } ;;
	esac
	;;
module)
	entry='hth_transport_backend|hth_transport_list|hth_engine_[a-z_]*'
	stray=$(echo "$visible" | grep -vE "^(hearth_.*|$entry)$" || true)
	;;
esac
[ -z "$stray" ] || { echo "$file: stray symbols:"; echo "$stray"; exit 1; }
echo "$visible" | grep -qxE "$entry" || { echo "$file: $entry is not visible"; exit 1; }
