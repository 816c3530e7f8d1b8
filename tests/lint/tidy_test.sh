#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tidy_test.sh ROOT: clang-tidy and clang-format with our settings do notice what they are for, and
# tidy.py judges a file again when anything changed that decides, and then alone.
set -eu
command -v clang-tidy >/dev/null || { echo "skip: no clang-tidy"; exit 77; }
command -v clang-format >/dev/null || { echo "skip: no clang-format"; exit 77; }
root=$1
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

# A tree of two files; judged SAYS STATUS WHAT [TREE]: tidy.py judges so many, and ends so.
clang-tidy --version | grep -q 'version 14\.' || exit 0 # tidy.py judges with that one alone
export XDG_CACHE_HOME="$tmp/kept"
tree() {
	mkdir -p "$1/core/base" "$1/examples" "$1/tests/lint" "$1/build"
	cp .clang-tidy "$1"
	: >"$1/tests/lint/analyzer.h"
	echo 'static inline int two(const int *p) { return p ? 2 : 0; }' >"$1/core/base/two.h"
	printf '#include "core/base/two.h"\nint one(const int *p);\n' >"$1/core/one.c"
	echo 'int one(const int *p) { return two(p); }' >>"$1/core/one.c"
	printf 'int main(void) { return 0; }\n' >"$1/examples/main.c"
	commands "$1" -DA=1
}
commands() {
	cat >"$1/build/compile_commands.json" <<J
[{"directory": "$1/build", "file": "$1/core/one.c",
  "command": "cc $2 -I$1 -o one.o -c $1/core/one.c"},
 {"directory": "$1/build", "file": "$1/examples/main.c",
  "command": "cc -o main.o -c $1/examples/main.c"}]
J
}
judged() {
	rc=0
	python3 "$root/tests/lint/tidy.py" "$4" "$4/build" >said 2>&1 || rc=$?
	if [ $rc != "$2" ] || ! grep -q "^$1 of 2 files judged" said; then
		echo "$3: $1 of 2 files and status $2 were due; status $rc, and"
		cat said
		exit 1
	fi
}
tree "$tmp/a"
tree "$tmp/b"
judged 2 0 'nothing is kept' "$tmp/a"
judged 0 0 'all is kept' "$tmp/a"
judged 0 0 'the same in another folder' "$tmp/b"
commands "$tmp/b" -DA=2
judged 1 0 'another command' "$tmp/b"
sed -i 's/p ? 2 : 0/p ? 2 : *p/' "$tmp/a/core/base/two.h"
judged 1 1 'a fault in a header' "$tmp/a"
judged 1 1 'a fault is never kept' "$tmp/a"
sed -i 's/p ? 2 : \*p/p ? 2 : 0/' "$tmp/a/core/base/two.h"
judged 0 0 'the fault is taken back' "$tmp/a"
echo '#define MORE 1' >>"$tmp/a/tests/lint/analyzer.h"
judged 1 0 'another analyzer.h' "$tmp/a"
echo '# more' >>"$tmp/a/.clang-tidy"
judged 2 0 'another configuration' "$tmp/a"
