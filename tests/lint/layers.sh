#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# layers.sh ROOT [FILE...]: the arrows of docs/architecture.md. The compiler itself says which
# headers a file reads, so neither spelling nor a detour through another header hides one.
#
# Three kinds of header, one allow list each per folder:
#   ours    the folder's own, include/hearth/*.h, include/hearth/internal/OWNER/*.h
#   system  what the named headers of the C library pull in, and nothing else
#   other   third-party headers, by the first part of their path in /usr/include
#
# Code under a switch that is off by default is not seen.
set -eu
cd "$1"
shift
root=$(pwd -P)
cc=${CC:-cc}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

plain='assert errno inttypes limits stdarg stdbool stddef stdint stdio stdlib string'
world="$plain arpa/inet ctype dirent dlfcn fcntl fenv float fnmatch ftw getopt glob grp ifaddrs
    immintrin libgen locale math net/if netdb netinet/in netinet/tcp nmmintrin poll pthread pwd
    sched semaphore signal spawn stdatomic strings sys/epoll sys/eventfd sys/file sys/ioctl
    sys/mman sys/prctl sys/random sys/resource sys/sendfile sys/signalfd sys/socket sys/stat
    sys/statfs sys/statvfs sys/syscall sys/sysinfo sys/time sys/timerfd sys/types sys/uio sys/un
    sys/utsname sys/vfs sys/wait sys/xattr syscall termios threads time unistd linux/close_range
    linux/fs linux/futex linux/limits linux/magic linux/memfd linux/openat2 linux/pidfd"

# What FILE may read: owners, system, other. No time.h, pthread.h, unistd.h or sys/ in
# replication and loader: their state machines cannot look at the world.
rule() {
    owners='' system=$plain other='' folder=${1%%/*}
    case $1 in
    core/crc.c) owners='core' system=$world other='isa-l' ;;
    core/auth.c) owners='core' system=$world other='sodium sodium.h' ;;
    core/* | include/hearth/internal/core/*) owners='core' system=$world ;;
    transport/ofi/*) owners='core transport' system=$world other='rdma' folder=transport/ofi ;;
    transport/ucx/*) owners='core transport' system=$world other='ucm ucp ucs uct' folder=transport/ucx ;;
    transport/* | include/hearth/internal/transport/*) owners='core transport' system=$world ;;
    replication/* | include/hearth/internal/replication/*) owners='core transport replication' ;;
    loader/* | include/hearth/internal/loader/*) owners='core transport replication loader' ;;
    engine/* | include/hearth/internal/engine/*)
        owners='core transport replication loader engine' system=$world ;;
    daemon/*) owners='core transport replication loader engine' system=$world ;;
    client/* | include/hearth/internal/client/*) owners='core client' system=$world ;;
    cli/*) owners='core client' system=$world other='jansson.h jansson_config.h' ;;
    examples/*) system=$world other='mpi.h sodium sodium.h' ;;
    include/hearth/internal/*) ;;
    include/hearth/*) system='stddef stdint' ;;
    esac
}

# Headers FILE reads, one real path a line; a missing one keeps the name it was given.
headers() {
    "$cc" -std=c17 -D_GNU_SOURCE -DHEARTH_ISAL -DHEARTH_POINTS -Iinclude -x c -M -MG "$1" \
        >"$tmp/out" 2>"$tmp/errors" || return 1
    sed -e 's/^[^:]*://' -e 's/\\$//' "$tmp/out" | tr -s ' ' '\n' | sed '/^$/d' |
        xargs -d '\n' realpath -m --no-symlinks | sort -u
}

# The files that the named headers of the C library are made of; cached per list.
declare -A known=()
system_files() {
    local h id
    id=${known[$1]:-}
    if [ -z "$id" ]; then
        id=$tmp/system.${#known[@]}
        for h in $1; do echo "#include <$h.h>"; done >"$id.c"
        headers "$id.c" >"$id"
        known[$1]=$id
    fi
    system_list=$id
}

# allowed HEADER FILE: by the lists of rule().
allowed() {
    local where list
    case $1 in
    "$root/$2") return 0 ;;
    "$root/include/hearth/internal/"*) where=${1#"$root/include/hearth/internal/"} list=$owners ;;
    "$root/include/hearth/"*) return 0 ;;
    "$root/$folder/"*) [ "$folder" != include ]; return ;;
    "$root/"*) # a file that does not exist: a third party's that is not in /usr/include
        [ ! -e "$1" ] || return 1
        where=${1#"$root/"} list=$other ;;
    /usr/include/*) where=${1#/usr/include/} list=$other ;;
    *) return 1 ;;
    esac
    case " $list " in *" ${where%%/*} "*) return 0 ;; *) return 1 ;; esac
}

check() {
    local h
    rule "$1"
    system_files "$system"
    if ! headers "$1" >"$tmp/read"; then
        echo "$1: cannot be read"
        cat "$tmp/errors"
        bad=1
        return
    fi
    while read -r h; do
        allowed "$h" "$1" || { echo "$1 may not include ${h#"$root"/}"; bad=1; }
    done < <(comm -23 "$tmp/read" "$system_list")
}

if [ $# -eq 0 ]; then
    mapfile -t files < <(find core transport replication loader engine daemon client cli examples \
        include -name '*.[ch]' 2>/dev/null | sort)
    set -- "${files[@]}"
fi
for file; do
    check "$file"
done
exit $bad
