#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/start/cluster.md: its blocks `sh`, as they stand in the page, in one shell in namespaces
# that end with it, and each line of the blocks `text` behind them in what they print:
#
#   tests/install/cluster.sh [BUILD]    BUILD: the tree whose install is used; build/release
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
build=${1:-build/release}
page=docs/start/cluster.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$(id -u)" != 0 ] || ! unshare --net --mount true 2>/dev/null; then
    echo "skip cluster: only root makes network namespaces and mounts"
    exit 0
fi
if [ ! -e "$build/build.ninja" ]; then
    echo "skip cluster: $build is not there: tests/build release"
    exit 0
fi
if ! cmake --install "$build" --prefix "$work/hearth" >"$work/log" 2>&1; then
    echo "FAIL cluster: $(tail -n 1 "$work/log")"
    exit 1
fi
# shellcheck disable=SC2016 # the marks of blocks
sed -n '/^```sh$/,/^```$/{/^```/d;p}' $page >"$work/blocks"
# shellcheck disable=SC2016
sed -n '/^```text$/,/^```$/{/^```/d;p}' $page >"$work/lines"
mkdir "$work/tree" && cp -r examples "$work/tree/"

libraries=$(dirname "$(find "$work/hearth" -name "libhearth.so.*" -print -quit)")
# shellcheck disable=SC2016 # expanded inside
PATH=$work/hearth/bin:$PATH PKG_CONFIG_PATH=$libraries/pkgconfig LD_LIBRARY_PATH=$libraries \
    timeout -k 5 100 unshare --net --mount --pid --ipc --fork --kill-child --mount-proc bash -c '
        ip link set lo up
        mount -t tmpfs run /run && mount -t tmpfs mnt /mnt && cd "$1/tree" && . "$1/blocks"' \
    page "$work" >"$work/said" 2>&1
rc=$?
failed=''
[ $rc = 0 ] || failed="exit status $rc: $(tail -n 2 "$work/said" | tr '\n' ' ')"
[ -s "$work/lines" ] || failed="the page has no lines to compare"
while IFS= read -r line; do
    grep -qF -- "$line" "$work/said" || failed+=" nothing has printed '$line';"
done <"$work/lines"
left=$(find "$work/tree" -maxdepth 1 -name '*rank*' -o -maxdepth 1 -name '*.key')
[ -z "$left" ] || failed+=" $left stays"
if [ -n "$failed" ]; then
    cat "$work/said"
    echo "FAIL cluster: $failed"
    exit 1
fi
echo "ok cluster"
