#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# calls_test.sh LINT CC: calls.py names each planted circle, arrow and name of a small tree, and has nothing
# to say about a right one.
set -eu
calls=$1 cc=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
bad=0

# file NAME CODE
file() {
    mkdir -p "$(dirname "tree/$1")" "build/CMakeFiles/t.dir/$(dirname "$1")"
    echo "$2" >"tree/$1"
    "$cc" -c -o "build/CMakeFiles/t.dir/$1.o" "tree/$1"
}

# A right tree: transport stands on core/base, and two statics of one name.
fresh() {
    rm -rf tree build
    mkdir -p tree/tests/lint
    printf '%s\n' 'hearth_folder(core/base)' 'hearth_folder(core/store core/base)' 'hearth_group(core base store)' \
        'hearth_folder(transport core)' 'hearth_program(hearth cli core)' >tree/CMakeLists.txt
    file core/base/a.c 'static int take(int x) { return x; } int a(void) { return take(1); }'
    file core/base/b.c 'static int take(int x) { return x; } int a(void); int b(void) { return a() + take(2); }'
    file transport/t.c 'int b(void); int t(void) { return b(); }'
    file cli/c.c 'int a(void); int main(void) { return a(); }'
}

lint() { "$calls" tree build >said 2>&1; }

# shellcheck source=noticed.sh
. "$(dirname "$calls")/noticed.sh"

fine() {
    lint || { echo "refused: $1"; cat said; bad=1; }
}

fresh
fine 'a right tree'
file core/base/a.c 'int b(void); int a(void) { return b(); }'
says 'circle: core/base/a.c core/base/b.c'
printf 'core/base/a.c core/base/b.c one machine\n' >tree/tests/lint/pairs
fine 'a pair that is listed'
printf 'core/base/a.c core/base/b.c\n' >tree/tests/lint/pairs
says 'no reason'
fresh
file core/base/c.c 'int d(void); int c(void) { return d(); }'
file core/base/d.c 'int e(void); int d(void) { return e(); }'
file core/base/e.c 'int c(void); int e(void) { return c(); }'
says 'circle: core/base/c.c core/base/d.c core/base/e.c'
printf 'core/base/c.c core/base/d.c one machine\n' >tree/tests/lint/pairs
says 'no pair any more: core/base/c.c core/base/d.c'
for i in 1 2 3 4; do echo "core/base/a.c core/base/$i.c reason"; done >tree/tests/lint/pairs
says '4 pairs, and 3 are allowed'
fresh
file core/store/s.c 'int t(void); int s(void) { return t(); }'
says 'arrow: core/store/s.c uses transport/t.c: t'
fresh
file core/base/u.c 'int s(void); int u(void) { return s(); }'
file core/store/s.c 'int a(void); int s(void) { return a(); }'
says 'arrow: folders in a circle: core/base core/store'
fresh
file transport/u.c 'static int take(int x) { return x; } int u(void) { return take(1); }'
says 'name: take() is static in 3 files'
fresh
echo 'static inline int take(int x) { return x; }' >tree/shared.h
for i in 1 2 3; do file "transport/u$i.c" "#include \"../shared.h\"
int u$i(void) { return take($i); }"; done
fine 'an inline function of a header'
exit $bad
