#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A bare Debian root, for tests of what a new machine would see. As root:
#
#   tests/install/root.sh SUITE DIRECTORY    SUITE: bookworm, trixie, ...
#
# debootstrap makes the base of a suite once, in ${XDG_CACHE_HOME:-~/.cache}/hearth-roots, from this
# machine's package sources; DIRECTORY becomes a copy with those sources. Nothing is mounted there.
# Exit status: 77 where a root cannot be made here; the last line gives the reason.
set -euo pipefail
suite=${1:?SUITE} root=${2:?DIRECTORY}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hearth-roots
base=$cache/$suite

skip() {
    echo "skip: $*"
    exit 77
}
[ "$(id -u)" = 0 ] || skip "only root makes Debian roots"
# shellcheck source=/dev/null
here=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
if [ ! -e "$base/.done" ]; then
    command -v debootstrap >/dev/null || {
        apt-get update -q >/dev/null 2>&1 || true
        apt-get install -y -q debootstrap >/dev/null 2>&1 || skip "debootstrap cannot be installed"
    }
    # Debian's own come first; others' sources are beside them.
    sources=$(find /etc/apt/sources.list.d/debian* /etc/apt/sources.list -type f 2>/dev/null ||
        true)
    # shellcheck disable=SC2086 # a list of files
    mirror=$(awk '/^URIs:/ { print $2; exit }
        /^deb / { for (i = 2; i <= NF; i++) if ($i ~ /:\/\//) { print $i; exit } }' $sources)
    mkdir -p "$cache"
    rm -rf "$base.new"
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$base.new" "$mirror" \
        >"$cache/$suite.log" 2>&1 || skip "debootstrap: $(tail -n 1 "$cache/$suite.log")"
    touch "$base.new/.done"
    rm -rf "$base"
    mv "$base.new" "$base"
fi
mkdir -p "$root"
cp -a "$base/." "$root/"
rm -f "$root/.done" "$root/etc/apt/sources.list"
for file in /etc/apt/sources.list /etc/apt/sources.list.d /etc/apt/apt.conf.d; do
    [ ! -e $file ] || cp -a $file "$root/etc/apt/"
done
if [ "$suite" != "$here" ]; then # another Debian: its own packages from the same sources
    find "$root/etc/apt/sources.list.d" -type f ! -name 'debian*' -delete
    sed -i "s/\b$here\b/$suite/g" "$root"/etc/apt/sources.list \
        "$root"/etc/apt/sources.list.d/debian* 2>/dev/null || true
fi
cp -aL /usr/share/keyrings/. "$root/usr/share/keyrings/"
cp -aL /etc/ssl/certs/. "$root/etc/ssl/certs/" 2>/dev/null || true
for file in /etc/resolv.conf /etc/hosts; do
    [ ! -e $file ] || cp -L $file "$root$file"
done
