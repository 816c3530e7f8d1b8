#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tidy_test.sh ROOT: clang-tidy and clang-format with our settings do notice what they are for.
set -eu
command -v clang-tidy >/dev/null || { echo "skip: no clang-tidy"; exit 77; }
command -v clang-format >/dev/null || { echo "skip: no clang-format"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp "$1/.clang-tidy" "$1/.clang-format" "$tmp"
cd "$tmp"
cat >use.c <<'C'
int use(int *p);
int use(int *p)
{
    if (!p)
        return *p;
    return 0;
}
C
clang-format --dry-run -Werror use.c || { echo "clang-format refuses a clean file"; exit 1; }
if clang-tidy --quiet use.c -- -std=c17 >said 2>&1; then
	echo "clang-tidy does not notice a null pointer that is read"
	cat said
	exit 1
fi
sed -i 's/return \*p/return  *p/' use.c
if clang-format --dry-run -Werror use.c 2>/dev/null; then
	echo "clang-format does not notice a double blank"
	exit 1
fi
