#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# deploy/container/Containerfile, its steps executed in bare roots, and the image as containers run
# it: read-only, as its user and as one that no passwd file has. As root; minutes:
#
#   tests/install/container.sh [DEBIAN...]    12 and 13 with tests/run --long
#
# One line each: "ok NAME", "skip NAME: REASON", "FAIL NAME: REASON". There is no container runtime
# here: a stage is a directory, RUN is chroot, and an instruction that this file does not know is a
# failure. Nothing of a runtime's own (layers, caches, entry points) is tested.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
recipe=deploy/container/Containerfile

fail() {
    echo "FAIL container-$debian: $*"
    failed=1
    return 1
}

# What RUN and the image's programs see: /proc, and devices of their own.
inside() { # STAGE COMMAND...: in namespaces that end with the command
    local root=$work/$1
    shift
    # shellcheck disable=SC2016 # expanded inside
    unshare --mount --pid --fork --kill-child bash -c '
        root=$0
        mount -t proc proc "$root/proc" && mount -t tmpfs -o mode=755 dev "$root/dev" || exit 125
        for d in null zero full random urandom; do
            : >"$root/dev/$d" && mount --bind "/dev/$d" "$root/dev/$d" || exit 125
        done
        ln -s /proc/self/fd "$root/dev/fd"
        mkdir -m 1777 "$root/dev/shm" && mount -t tmpfs -o size=64m,mode=1777 shm "$root/dev/shm"
        eval "$1"
        shift
        exec chroot "$root" "$@"' "$root" "${before:-}" "$@"
}

substitute() { # ARG values, as ${NAME}
    local text=$1 name
    for name in "${!arg[@]}"; do
        text=${text//"\${$name}"/${arg[$name]}}
    done
    echo "$text"
}

from() { # IMAGE [AS NAME]
    local suite
    case $1 in
    debian:12-slim) suite=bookworm ;;
    debian:13-slim) suite=trixie ;;
    *) fail "FROM $1: no root of that name can be made here"; return ;;
    esac
    stage=${3:-image} directory=/
    user='' environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
    tests/install/root.sh "$suite" "$work/$stage" >"$work/log" 2>&1
    case $? in
    0) ;;
    77) skipped=$(sed -n 's/^skip: //p' "$work/log"); return 1 ;;
    *) fail "$(tail -n 1 "$work/log")" ;;
    esac
}

copy() { # [--from=STAGE] SOURCE DESTINATION
    local source=$work/context to
    [[ $1 != --from=* ]] || { source=$work/${1#--from=}; shift; }
    to=$work/$stage/$(cd / && realpath -m --relative-to=/ "$directory/$2")
    mkdir -p "$to" && cp -a "$source/$1/." "$to/"
}

step() { # an instruction and its words
    local what=$1 rest
    rest=$(substitute "${2-}")
    # shellcheck disable=SC2086 # the words of the instruction
    case $what in
    ARG) arg[${rest%%=*}]=${rest#*=} ;;
    FROM) from $rest ;;
    WORKDIR) directory=$rest && mkdir -p "$work/$stage$rest" ;;
    ENV) environment+=("$rest") ;;
    USER) user=$rest ;;
    CMD) command=$rest ;;
    COPY) copy $rest || fail "COPY $rest" ;;
    RUN)
        inside "$stage" env -i "${environment[@]}" DEBIAN_FRONTEND=noninteractive \
            sh -c "cd $directory && $rest" >"$work/log" 2>&1 ||
            fail "RUN $rest: $(tail -n 3 "$work/log" | tr '\n' ' ')"
        ;;
    *) fail "$what: this instruction is not known here" ;;
    esac
}

# Lines that end in \ are one; comments go.
execute() {
    local line whole=''
    while IFS= read -r line; do
        [[ $line != \#* && -n $line ]] || continue
        whole+=$line
        if [[ $whole = *\\ ]]; then
            whole=${whole%\\}
            continue
        fi
        [ "${whole%% *}" != ARG ] || [ -z "${arg[DEBIAN]:-}" ] || whole="ARG DEBIAN=$debian"
        step "${whole%% *}" "${whole#* }" || return 1
        whole=''
    done < <(echo "ARG DEBIAN=$debian"; cat "$recipe")
}

# as UID:GID COMMAND...: in the image, read-only, without rights, with a root of the job's
as() {
    local who=$1
    shift
    before="mount --rbind '$work/image' '$work/image' && mount -o remount,ro,bind '$work/image' &&
        mount --bind '$work/memory' '$work/image/mnt/hearth' || exit 125" \
        inside image setpriv --reuid "${who%:*}" --regid "${who#*:}" --clear-groups \
        --no-new-privs --bounding-set=-all env -i "${environment[@]}" HEARTH_ROOT=/mnt/hearth "$@"
}

image_is_whole() {
    local who said found program
    found=$(cd "$work/image" && find usr/bin usr/include opt \
        \( -name 'gcc*' -o -name cmake -o -name '*.h' \) -print -quit)
    [ -z "$found" ] || fail "the image has $found, which only the build needs" || return
    [ "$user" = 65532:65532 ] || fail "USER is '$user'" || return
    # shellcheck disable=SC2016 # expanded inside
    inside build sh -c 'cd /src/examples && gcc -O2 -o /save_recover save_recover.c \
        -I/opt/hearth/include -L/opt/hearth/lib -lhearth -Wl,-rpath,/opt/hearth/lib' \
        >"$work/log" 2>&1 || fail "the example: $(tail -n 1 "$work/log")" || return
    for who in "$user" 12345:0; do
        umount "$work/memory" 2>/dev/null
        mkdir -p "$work/memory"
        mount -t tmpfs -o size=256m,mode=1777 memory "$work/memory" || return
        cp "$work/build/save_recover" "$work/memory/program"
        program=$(sed -E 's/^\["([a-z]+)".*/\1/' <<<"$command")
        as "$who" "$program" --version >"$work/log" 2>&1 ||
            fail "$command as $who: $(tail -n 1 "$work/log")" || return
        as "$who" /mnt/hearth/program /mnt/hearth >"$work/log" 2>&1 ||
            fail "a save as $who: $(tail -n 1 "$work/log")" || return
        said=$(as "$who" /mnt/hearth/program /mnt/hearth 2>&1)
        grep -q 'saved steps 6 to 10' <<<"$said" ||
            fail "the second run as $who has not resumed: $said" || return
        as "$who" sh -c ': >/x' 2>/dev/null && fail "the image can be written" && return 1
    done
    return 0
}

finish() {
    umount "$work/memory" 2>/dev/null
    rm -rf --one-file-system "$work"
}

failed=0
if [ $# = 0 ]; then
    [ -n "${HEARTH_LONG:-}" ] || { echo "skip container: minutes: tests/run --long"; exit 0; }
    set -- 12 13
fi
for debian; do
    if [ "$(id -u)" != 0 ]; then
        echo "skip container-$debian: only root makes roots and mounts"
        continue
    fi
    declare -A arg=()
    work=$(mktemp -d) skipped='' stage='' command=''
    trap finish EXIT
    mkdir "$work/context"
    git ls-files -z | tar -c --null -T - --ignore-failed-read 2>/dev/null |
        tar -x -C "$work/context"
    if execute && image_is_whole; then
        echo "ok container-$debian"
    elif [ -n "$skipped" ]; then
        echo "skip container-$debian: $skipped"
    fi
    finish
done
exit $failed
