#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# worst_seeds.sh [--from N] [--to N] [--again] [BUILD]: the
# strict provider's `worst` with many seeds (1..1000 without), a second or two each.
# BUILD/worst_seeds keeps the seeds that have run, so that a run that was stopped goes on where it
# was; --again forgets it. On demand; the result is recorded in tests/on-demand.md. A seed that
# failed, alone: conformance --backend ofi-strict-worst --seeds N-N
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/debug from=1 to=1000 step=20
while [ $# -gt 0 ]; do
    case $1 in
    --from) from=${2:?} && shift 2 ;;
    --to) to=${2:?} && shift 2 ;;
    --again) rm -f "$build/worst_seeds" && shift ;;
    -*) echo "worst_seeds.sh: unknown argument $1" >&2 && exit 2 ;;
    *) build=$1 && shift ;;
    esac
done
[ -x "$build/bin/conformance" ] || { echo "no $build/bin/conformance: build first"; exit 2; }
export HEARTH_TEST_LIB=$build/lib FI_PROVIDER_PATH=$build/lib/strictfi
state=$build/worst_seeds # "FIRST LAST FAILED", a line for each lot
touch "$state"
for ((first = from; first <= to; first += step)); do
    last=$((first + step - 1 < to ? first + step - 1 : to))
    grep -q "^$first $last " "$state" && continue
    out=$("$build/bin/conformance" --backend ofi-strict-worst --seeds "$first-$last" 2>&1)
    rc=$?
    [ $rc = 0 ] || echo "$out"
    [ $rc -lt 2 ] || exit $rc
    echo "$first $last $(echo "$out" | grep -c '^seed .* failed:')" >>"$state"
done
ran=$(awk -v f="$from" -v t="$to" '$1 >= f && $2 <= t { n += $2 - $1 + 1 } END { print n + 0 }' "$state")
failed=$(awk -v f="$from" -v t="$to" '$1 >= f && $2 <= t { n += $3 } END { print n + 0 }' "$state")
echo "seeds $from to $to: $ran ran, $failed failed"
[ "$from-$to" != 1-1000 ] || "$root/tests/record" tests/transport/worst_seeds.sh "$((failed != 0))" "seeds $from to $to: $failed failed"
[ "$failed" = 0 ]
