#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# plot_test.sh BUILD: `tests/bench/run --plot` measures tiny sizes and draws what it has measured.
set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

# wrong SENTENCE: said, and the test fails
wrong() {
    echo "$1"
    bad=1
}

rc=0
HEARTH_PLOT_PYTHON=false tests/bench/run --build "$1" --plot "$tmp/none" >"$tmp/said" 2>&1 || rc=$?
[ $rc = 2 ] || wrong "without matplotlib the status is $rc instead of 2"
grep -q "needs matplotlib: install Debian's python3-matplotlib" "$tmp/said" ||
    wrong "without matplotlib nothing says what to install: $(cat "$tmp/said")"
[ "$(wc -l <"$tmp/said")" = 1 ] || wrong "without matplotlib something was measured"

for python in python3 /usr/bin/python3 none; do
    ! "$python" -c 'import matplotlib' 2>/dev/null || break
done
if [ "$python" = none ] && [ $bad = 0 ]; then
    echo "skip: no matplotlib (Debian's python3-matplotlib)"
    exit 77
fi
HEARTH_PLOT_PYTHON=$python tests/bench/run --build "$1" --backend tcp --memory huge --mib 3 \
    --rounds 1 --only plot --plot "$tmp/plots" --json "$tmp/rows.json" >"$tmp/said" 2>&1 ||
    { cat "$tmp/said"; wrong "tests/bench/run ended with $?"; }

# drawn NAME WORDS...: there is a PNG, and an SVG with these words
drawn() {
    local name=$1 word
    shift
    [ "$(head -c 4 "$tmp/plots/$name.png" | tail -c 3)" = PNG ] || wrong "$name.png is no PNG"
    for word; do
        grep -qF -- ">$word" "$tmp/plots/$name.svg" || wrong "$name.svg does not have: $word"
    done
}

drawn save-rate 'Hearth, save: begin, add, commit' 'limit: streaming copy' '1 MiB' '3 MiB'
drawn replicate-rate 'Hearth, replicate: sealed to PROTECTED' 'limit: raw pull' '1 MiB' '3 MiB'
drawn save-timeline 'copied out of the tensors' sealed PROTECTED
drawn recovery-timeline noticed joined recovered 'handed over' PROTECTED \
    join inventory plan pull verify vote
exit $bad
