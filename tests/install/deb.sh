#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail

help() {
    cat <<'H'
tests/install/deb.sh [--long] [--packages DIR]: the Debian packages. Prints a line for each result:
"ok NAME", "skip NAME: reason" or "FAIL NAME: reason".

  --packages DIR  judge these, and build none
  --long          also: two builds are the same, byte for byte
H
}

cd "$(dirname "$0")/../.." || exit 2
long=0 packages='' bad=0
while [ $# -gt 0 ]; do
    case $1 in
    --long) long=1; shift ;;
    --packages) packages=${2:?--packages needs a folder}; shift 2 ;;
    -h | --help) help; exit 0 ;;
    *) echo "deb.sh: unknown argument $1; see --help" >&2; exit 2 ;;
    esac
done
ok() { echo "ok deb.$1"; }
fail() { echo "FAIL deb.$1: $2"; bad=1; }

# files FILE.deb: its files and links, without what every package has of its own.
files() {
    dpkg-deb --fsys-tarfile "$1" | tar -t | sed -n 's/^\.\(.*[^/]\)$/\1/p' |
        grep -vE '^/usr/share/doc/[^/]+/(changelog\.gz|copyright)$'
}

# Which package has which files: tests/install/deb.files.
judge_files() {
    local wrong=0 name pattern file deb seen
    local -A matched=()
    while read -r deb; do
        name=$(dpkg-deb -f "$deb" Package)
        [[ $name != *-dbgsym ]] || continue
        while read -r file; do
            seen=0
            while read -r pattern; do
                # shellcheck disable=SC2053 # a pattern
                if [[ $file == $pattern ]]; then matched["$name $pattern"]=1 seen=1; fi
            done < <(sed -n "s/^$name //p" tests/install/deb.files)
            [ $seen = 1 ] && continue
            fail files "$name has $file, which tests/install/deb.files does not list"
            wrong=1
        done < <(files "$deb")
    done < <(ls "$packages"/*.deb)
    while read -r name pattern; do
        case $name in '' | '#'*) continue ;; esac
        [ -n "${matched["$name $pattern"]:-}" ] || { fail files "$name has no $pattern"; wrong=1; }
    done <tests/install/deb.files
    [ $wrong = 1 ] || ok files
}

# The engine alone brings no fabric's library, and no package runs a script of ours at installation.
judge_control() {
    local wrong=0 deb script ends='systemctl .*(stop|restart)|deb-systemd-invoke'
    if dpkg-deb -f "$packages"/hearth_*.deb Depends | grep -E 'fabric|ucx|hearth-'; then
        fail control "hearth depends on a fabric"
        wrong=1
    fi
    for deb in "$packages"/*.deb; do
        for script in $(dpkg-deb --ctrl-tarfile "$deb" | tar -t |
            grep -E '/(pre|post)(inst|rm)$'); do
            # py3compile's and systemd's parts are debhelper's
            dpkg-deb --ctrl-tarfile "$deb" | tar -xO "$script" | grep -E "$ends" || continue
            fail control "$script of $(basename "$deb") may end an engine"
            wrong=1
        done
    done
    [ $wrong = 1 ] || ok control
}

judge_lintian() {
    local said
    command -v lintian >/dev/null || { echo "skip deb.lintian: no lintian"; return; }
    [ -e "$(echo "$packages"/*.changes)" ] ||
        { echo "skip deb.lintian: no .changes beside the packages"; return; }
    said=$(lintian --allow-root --fail-on error,warning "$packages"/*.changes 2>&1) &&
        ok lintian && return
    fail lintian "$(echo "$said" | grep -E '^[EW]:' | head -n 5 | paste -sd';' -)"
}

judge_reproducible() {
    local first
    first=$(cd "$packages" && sha256sum ./*.deb)
    CCACHE_DISABLE=1 deploy/package deb --no-install >/dev/null ||
        { fail reproducible "the second build"; return; }
    [ "$first" = "$(cd "$packages" && sha256sum ./*.deb)" ] ||
        { fail reproducible "two builds differ"; return; }
    ok reproducible
}

built=0
if [ -z "$packages" ]; then
    for tool in dpkg-buildpackage dh dh_python3; do
        command -v $tool >/dev/null || { echo "skip deb.build: no $tool"; exit 0; }
    done
    packages=$PWD/build/packages built=1
    if ! deploy/package deb --no-install >build/deb.out 2>&1; then
        fail build "$(tail -n 3 build/deb.out | paste -sd' ' -)"
        exit 1
    fi
    ok build # where the list of symbols differs from the library's, dh_makeshlibs ends it
fi
judge_files
judge_control
judge_lintian
[ $long = 0 ] || [ $built = 0 ] || judge_reproducible
exit $bad
