#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# format.sh ROOT: every C file is as clang-format leaves it, and not longer than 800 lines. In its
# comments, sentences have at most 100 columns; tables and pictures may have more.
set -eu
cd "$1"
list() { find . -name build -prune -o -name '*.[ch]' -type f -print | sort; }
long=$(list | xargs wc -l | awk '$1 > 800 && $2 != "total" { print $2 ": " $1 " lines" }')
[ -z "$long" ] || { echo "split these: $long"; exit 1; }
sentence='^(?=.{101})\s*(/\*|\*) (?! |.*\S  +\S)(?!.*[─-◿])'
wide=$(list | LC_ALL=C.UTF-8 xargs grep -nP "$sentence") || :
[ -z "$wide" ] || { printf 'over 100 columns:\n%s\n' "$wide"; exit 1; }
command -v clang-format >/dev/null || { echo "skip: no clang-format"; exit 77; }
clang-format --version | grep -q 'version 14\.' ||
	{ echo "skip: the format is clang-format 14's, and this is another"; exit 77; }
list | xargs clang-format --dry-run -Werror
