#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deploy/systemd as far as it can be judged where systemd is not PID 1: the units are well formed,
# the score of the engine's is the one in docs/operate/systemd.md, and its command line runs.
#
#   tests/install/systemd.sh    HEARTH_BUILD: default build/debug
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
hearthd=$(realpath "${HEARTH_BUILD:-build/debug}/bin/hearthd") || exit 2
command -v systemd-analyze >/dev/null || { echo "skip systemd: no systemd-analyze here"; exit 0; }
work=$(mktemp -d) && trap 'kill ${pid:-} 2>/dev/null; rm -rf "$work"' EXIT
fail() { echo "FAIL systemd: $*"; exit 1; }

for unit in deploy/systemd/*; do
    sed "s|@HEARTHD@|$hearthd|" "$unit" >"$work/${unit##*/}"
done
grep -q '^User=' docs/operate/systemd.md ||
    fail "docs/operate/systemd.md has no drop-in with a user"
said=$(SYSTEMD_UNIT_PATH=$work: systemd-analyze verify --man=no \
    "$work/hearthd@a.service" "$work/run-hearth.mount" 2>&1) || fail "verify: $said"
[ -z "$said" ] || fail "verify: $said"

# Run as root, without a drop-in, it refuses.
if [ "$(id -u)" = 0 ]; then
    pre=$(sed -n 's/^ExecStartPre=//p' "$work/hearthd@.service" | sed 's/\$\$/$/g; s/%i/a/g')
    said=$(eval "$pre") && fail "root is not refused"
    [[ $said == *User=* ]] || fail "root is refused with: $said"
fi
printf '[Service]\nUser=nobody\n' >>"$work/hearthd@.service"
export SYSTEMD_UNIT_PATH="$work:"
score=$(systemd-analyze security --offline=true "$work/hearthd@.service" 2>&1 |
    sed -n 's/.*exposure level for .*: \([0-9.]*\) .*/\1/p')
grep -q "score is $score " docs/operate/systemd.md || fail "score $score is not the page's"

# The command line as the unit has it, in a root of this test's: it ends with 0 by SIGTERM.
mkdir -m 1777 "$work/root"
read -ra line < <(sed -n 's/^ExecStart=//p' "$work/hearthd@.service" |
    sed "s|/run/hearth|$work/root|; s|%i|a|; s|\$HEARTHD_OPTIONS|--any-root --transport tcp|")
"${line[@]}" 2>"$work/log" &
pid=$!
for _ in {1..100}; do
    [ -S "$work/root/a/.hearth/sock" ] && break
    sleep 0.1
done
[ -S "$work/root/a/.hearth/sock" ] || fail "the engine does not serve: $(tail -n 1 "$work/log")"
kill "$pid"
wait "$pid" || fail "the engine ended with $?"
echo "ok systemd"
