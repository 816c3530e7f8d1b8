#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mutate_test.sh ROOT: tests/mutate/run of a small tree. It kills what the test there notices, names what it does not, ends
# what hangs, leaves out what does not compile, goes on where it stopped, and fails by a survivor without a reason and by a
# hand-written mutant whose text is gone.
set -u
root=$1
tmp=$(mktemp -d -p "$PWD") # not in /tmp, which each test finds empty
hidden=$(mktemp -d /tmp/mutate.XXXXXX)
trap 'rm -rf "$tmp" "$hidden"' EXIT
cd "$tmp" || exit 2
case $tmp in /tmp/* | /dev/shm/*) echo "skip: the build is below $tmp"; exit 77 ;; esac
{ command -v ninja && command -v python3; } >/dev/null || { echo "skip: no ninja or python3"; exit 77; }
mkdir -p tree/core/base tree/tests/mutate/must
cp "$root/tests/quick" tree/tests
cat >tree/CMakeLists.txt <<'C'
cmake_minimum_required(VERSION 3.25)
set(CMAKE_C_COMPILER_WORKS 1)
project(p LANGUAGES C)
enable_testing()
add_executable(test_core_planted core/base/planted.c test.c)
add_test(NAME core.planted COMMAND test_core_planted)
C
planted() {
    cat <<'C'
/* if (x > 1) says nothing here */
int planted(int x);
int planted(int x)
{
    int n = 0; const char *text = "if (x > 2)";

    if (x > 3)
        n = 1;
    while (x > 0)
        x--;
    return text ? n : 2;
}
int passed_on(int n, ...);
int passed_on(int n, ...)
{
    return n > 5;
}
C
}
planted >tree/core/base/planted.c
echo 'int planted(int x); int main(void) { return planted(5) != 1 || planted(0) != 0; }' >tree/test.c
must='[planted-by-hand] the greater is the smaller
core/base/planted.c planted
- if (x > 3)
+ if (x
+         < 3)
[broken-by-hand] no C
core/base/planted.c planted
- n = 1;
+ n = = 1;'
echo "$must" >tree/tests/mutate/must/core
bad=0

# ends STATUS WHAT ARGUMENT...: the run ends so, and said has what it wrote.
ends() {
    local status=$1 what=$2 rc
    shift 2
    "$root/tests/mutate/run" --root "$tmp/tree" --only core/base --deadline 1 "$@" >said 2>&1
    rc=$?
    [ $rc = "$status" ] || { echo "$what: ends with $rc"; cat said; bad=1; }
}
says() {
    grep -qE "$1" said || { echo "does not say: $1"; cat said; bad=1; }
}

ends 0 'a list' --list
[ "$(wc -l <said)" = 6 ] || { echo "these are not 6 mutants"; cat said; bad=1; }
cut -d' ' -f1 said | sort >ids
{ echo '/* one more */ int other(int x); int other(int x) { return x > 7; }'; planted; } >tree/core/base/planted.c
ends 0 'a list with a function more' --list
[ -z "$(cut -d' ' -f1 said | sort | comm -23 ids -)" ] || { echo "an edit elsewhere renames mutants"; cat said; bad=1; }
planted >tree/core/base/planted.c

planted >tree/core/base/second.c
for seed in 1 2 3 4 5 6 7 8; do
    ends 0 'a draw' --list --sample 1 --seed "$seed"
    cat said
done >drawn
rm tree/core/base/second.c
for file in planted second; do
    grep -q "base/$file.c" drawn || { echo "eight seeds draw no mutant of $file.c"; bad=1; }
done

ends 2 'a tree below /tmp' --all --root "$hidden"
says 'is below /tmp, which each test finds empty'
ln -s "$hidden" elsewhere
ends 2 'a tree below /tmp by another name' --all --root "$tmp/elsewhere"
says 'is below /tmp, which each test finds empty'
ends 1 'survivors without a reason' --all --must
says '^core:planted-by-hand .*: killed by core.planted in'
says '^core:broken-by-hand .*: does not build'
says 'planted.c:7 planted\(\): negate: killed by core.planted in'
says 'planted.c:7 planted\(\): > to >=: SURVIVED'
says '^    - if \(x > 3\)'
says 'planted.c:10 planted\(\): assignment left out: killed by core.planted, by its deadline'
says '^core/base: 5 of 7 killed \(71 %\), 2 survived, 0 equivalent, 1 do not build'
lines=$(wc -l <tree/build/mutate/results)
sed -nE 's/^([0-9a-f]+) .*SURVIVED.*/\1 nobody gives 3 or 0/p' said >tree/tests/mutate/equivalent
ends 0 'survivors with a reason' --all --must
says ': equivalent: nobody gives 3 or 0'
[ "$(wc -l <tree/build/mutate/results)" = "$lines" ] || { echo "what was done is done again"; bad=1; }
sed -i '1s/ .*//' tree/tests/mutate/equivalent
ends 2 'an equivalent mutant without a reason' --all
says 'has no reason'
: >tree/tests/mutate/equivalent
sed -i 's/x > 3/x > 4/' tree/core/base/planted.c
ends 2 'a hand-written mutant whose text is gone' --must
says 'core:planted-by-hand: its text is 0 times in planted\(\)'
ends 2 'no such mutant' --ids nosuch
exit $bad
