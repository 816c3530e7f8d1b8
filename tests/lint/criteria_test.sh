#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# criteria_test.sh ROOT CC: an assertion of tests/support/criteria that does not hold fails its
# test, with its operands and its message; one that holds does not.
set -eu
root=$1 compiler=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

cat >"$tmp/holds" <<'H'
eq(int, 3, 3)
ne(int, 3, 4)
lt(int, -1, 0)
le(int, -1, 0)
le(int, 3, 3)
gt(int, 0, -1)
ge(int, 0, -1)
ge(int, 3, 3)
gt(u64, UINT64_MAX, 1)
eq(u32, 0x100000001u, 1)
eq(i64, -1, (int64_t)UINT64_MAX)
gt(sz, SIZE_MAX, 0)
eq(u8, 257, 1)
eq(u16, 65537, 1)
eq(i32, -1, -1)
gt(uint, UINT32_MAX, 0)
eq(ulong, 1, 1)
eq(long, -1, -1)
eq(llong, -1, -1)
eq(chr, 'a', 'a')
lt(dbl, 0.25, 0.5)
eq(ptr, text, text)
ne(ptr, text, NULL)
zero(ptr, NULL)
zero(int, 0)
eq(str, text, "abc")
lt(str, text, "abd")
epsilon_eq(flt, 1.0f, 1.25f, 0.25f)
not(eq(int, 3, 4))
text[0] == 'a'
H
# What is printed after each.
cat >"$tmp/fails" <<'F'
eq(int, 3, 4)|: 3 and 4
ne(int, 3, 3)|: 3 and 3
lt(int, 3, 3)|: 3 and 3
lt(int, 0, -1)|: 0 and -1
le(int, 4, 3)|: 4 and 3
gt(int, 3, 3)|: 3 and 3
gt(int, -1, 0)|: -1 and 0
ge(int, 3, 4)|: 3 and 4
eq(u64, UINT64_MAX, 1)|: 18446744073709551615 and 1
lt(u64, UINT64_MAX, 1)|: 18446744073709551615 and 1
eq(u32, 2, 1)|: 2 and 1
eq(i64, -1, 1)|: -1 and 1
zero(int, 7)|: 7 and 0
zero(ptr, (void *)8)|: 0x8 and 0x0
ne(ptr, NULL, NULL)|: 0x0 and 0x0
eq(str, text, "abd")|: 'abc' and 'abd'
eq(dbl, 0.25, 0.5)|: 0.25 and 0.5
epsilon_eq(flt, 1.0f, 1.5f, 0.25f)|: 1 and 1.5
epsilon_eq(flt, nothing, nothing, 1.0f)|:
not(eq(int, 3, 3))|: 3 and 3
text[0] == 'b'|
F
{
    printf '#include "check.h"\n#include <criterion/logging.h>\n'
    printf 'static const char *const text = "abc";\n'
    printf '/* NaN, which no folding of constants takes for equal to itself */\n'
    printf 'static volatile float nothing = __builtin_nanf("");\n'
    printf 'Test(criteria, hold)\n{\n    int calls = 0;\n'
    while read -r one; do echo "    cr_assert($one);"; done <"$tmp/holds"
    printf '    cr_assert(eq(int, calls++, 0), "%%d", calls++);\n'
    printf '    cr_assert(eq(int, calls, 1));\n}\n'
    at=0
    while IFS='|' read -r one _; do
        at=$((at + 1))
        printf 'Test(criteria, fails_%d)\n{\n    (void)text;\n' $at
        printf '    cr_assert(%s, "case %%d of %%s", %d, "all");\n' "$one" $at
        printf '    cr_log_error("went on after %d");\n}\n' $at
    done <"$tmp/fails"
    printf 'Test(criteria, expects)\n{\n'
    printf '    cr_expect(zero(int, 5));\n    cr_expect(zero(int, 6));\n}\n'
} >"$tmp/planted.c"
read -ra flags < <(pkg-config --cflags --libs criterion)
"$compiler" -std=c17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -I"$root/tests/support" \
    -I"$root/include" "$tmp/planted.c" "$root/tests/support/criteria/criteria.c" -o "$tmp/planted" \
    "${flags[@]}"

"$tmp/planted" --color=never >"$tmp/said" 2>&1 && { echo "it ends with 0"; bad=1; }

# printed WORDS
printed() { grep -qF -- "$1" "$tmp/said" || { echo "not printed: $1"; bad=1; }; }

at=0
while IFS='|' read -r one operands; do
    at=$((at + 1))
    printed "$one is false$operands"
    printed ": case $at of all"
done <"$tmp/fails"
printed 'zero(int, 5) is false: 5 and 0'
printed 'zero(int, 6) is false: 6 and 0'
printed "Tested: $((at + 2)) | Passing: 1 | Failing: $((at + 1)) | Crashing: 0"
! grep -F 'went on' "$tmp/said" || bad=1
[ $bad = 0 ] || cat "$tmp/said"
exit $bad
