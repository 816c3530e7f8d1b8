#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ucx_releases.sh [BUILD]: the transport ucx on the oldest and the newest UCX that PyPI has (libucx-cu12: TCP and
# shared memory; no RDMA in those), all groups of conformance; on one of each release between, that messages pass or
# the transport is refused in words; and on the machine's own release each fault of
# transport/ucx/release.c, shown with its work-around left out. On demand: it wants a network and takes some
# minutes; the result is recorded in tests/on-demand.md.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/debug}
conformance=$build/bin/conformance
[ -x "$conformance" ] || { echo "no $conformance: build first"; exit 2; }
export HEARTH_TEST_LIB=$build/lib
unset HEARTH_UCX_LIBRARY HEARTH_UCX_WITHOUT
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

python3 -m venv "$tmp/venv" || exit 2
pip() { "$tmp/venv/bin/pip" --disable-pip-version-check -q "$@"; }
# No release is called 0: the refusal lists those there are, the oldest first.
versions=$(pip download --no-deps -d "$tmp" libucx-cu12==0 2>&1 | sed -n 's/.*(from versions: \([0-9][^)]*\)).*/\1/p' | tr -d ,)
[ -n "$versions" ] || { echo "skip: no wheels of UCX (libucx-cu12) can be had here"; exit 77; }
oldest=${versions%% *} newest=${versions##* }

bad=0 cells=0 skipped=0
# cell BACKEND GROUP: 0 passed or skipped
cell() {
    local rc=0
    timeout 200 "$conformance" --backend "$1" --group "$2" >"$tmp/log" 2>&1 || rc=$?
    cells=$((cells + 1))
    [ $rc != 77 ] || skipped=$((skipped + 1))
    [ $rc = 0 ] || [ $rc = 77 ]
}

for version in "$oldest" "$newest"; do
    if ! pip download --no-deps -d "$tmp/$version" "libucx-cu12==$version" 2>"$tmp/log"; then
        echo "skip: libucx-cu12 $version cannot be had"
        exit 77
    fi
    python3 -m zipfile -e "$tmp/$version"/*.whl "$tmp/$version" || exit 2
    export HEARTH_UCX_LIBRARY=$tmp/$version/libucx/lib/libucp.so.0
    failed=''
    for group in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do
        cell ucx-tcp $group && continue
        failed="$failed $group"
        tail -n 3 "$tmp/log"
    done
    echo "UCX $version: ${failed:+failed groups$failed}${failed:-all groups pass}"
    [ -z "$failed" ] || bad=1
done

refused=0
minor=''
for version in $versions; do
    of=$(printf '%s' "$version" | cut -d. -f1,2)
    [ "$of" != "$minor" ] || continue
    minor=$of
    pip download --no-deps -d "$tmp/$version" "libucx-cu12==$version" 2>"$tmp/log" || continue
    python3 -m zipfile -e "$tmp/$version"/*.whl "$tmp/$version" || exit 2
    export HEARTH_UCX_LIBRARY=$tmp/$version/libucx/lib/libucp.so.0
    before=$skipped
    if ! cell ucx-tcp 2; then
        tail -n 3 "$tmp/log"
        bad=1
    elif [ "$skipped" != "$before" ]; then
        refused=$((refused + 1))
        echo "UCX $version: $(tail -n 1 "$tmp/log")"
    fi
done

# Only a release that has the fault can show it: one that has not, passes. A fault that waits for the right
# moment has some tries.
unset HEARTH_UCX_LIBRARY
shown=0
# shown_by WORK-AROUND GROUP
shown_by() {
    for _ in 1 2 3 4 5; do
        if ! HEARTH_UCX_WITHOUT=$1 cell ucx-tcp "$2"; then
            echo "UCX $own without $1: fails, as it should"
            shown=$((shown + 1))
            return
        fi
    done
    echo "UCX $own without $1: passes: is the work-around still needed?"
    bad=1
}
own=$(CONFORM_LOG=1 "$conformance" --backend ucx-tcp --group 3 2>&1 | sed -n 's/.*(UCX \([0-9.]*\)).*/\1/p' | head -n 1)
case $own in
1.13.*)
    shown_by old-protocols,copied-sends 1 # over TCP the latter takes the old ones too
    shown_by copied-sends 4
    shown_by cut-handshakes 14
    ;;
*) echo "UCX ${own:-none} of this machine has no fault that is worked around" ;;
esac
words="libucx-cu12 $oldest and $newest: $cells cells, $skipped skipped; $shown faults of UCX ${own:-none} shown; $refused releases refused"
echo "$words"
"$root/tests/record" tests/transport/ucx_releases.sh $bad "$words"
exit $bad
