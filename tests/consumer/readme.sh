#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail

help() {
    cat <<'H'
tests/consumer/readme.sh [--check] PAGE...: types the lines of a page's "sh" blocks, as written.

They install packages and write to the system, so this is for a machine that is thrown away: a fresh
container or chroot, as root. Each README's lines are one shell's. It says what failed, or that all went well.

  --check   run nothing; only see that the apt-get line is that of deploy/packages
H
}

cd "$(dirname "$0")/../.." || exit 2
check=0
case ${1:-} in
-h | --help | '') help; exit 0 ;;
--check) check=1; shift ;;
esac
# shellcheck source=../../deploy/packages
. deploy/packages

# lines README: what is in its blocks of "sh", each command on a line of its own
# shellcheck disable=SC2016 # those are no commands
lines() {
    sed -n '/^```sh$/,/^```$/p' "$1" | grep -v '^```' | sed -e ':a' -e '/\\$/N; s/\\\n */ /; ta'
}

for readme; do
    [ -n "$(lines "$readme")" ] || { echo "readme: $readme has no sh block"; exit 1; }
    said=$(lines "$readme" | sed -n 's/^apt-get install -y //p' | tr ' ' '\n' | sort)
    # shellcheck disable=SC2154 # from deploy/packages
    for name in $packages_build; do
        grep -qxF "$name" <<<"$said" || { echo "readme: $readme does not install $name, which deploy/packages has"; exit 1; }
    done
    [ $check = 0 ] || continue
    [ "$(id -u)" = 0 ] || { echo "readme: only as root, on a machine that is thrown away" >&2; exit 2; }
    echo "readme: $readme, as written:"
    lines "$readme"
    if ! bash -e -x <(lines "$readme") </dev/null; then
        echo "readme: FAILED: a line of $readme does not work as written"
        exit 1
    fi
    echo "readme: every line of $readme works as written"
done
