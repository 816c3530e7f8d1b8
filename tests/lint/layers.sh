#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# layers.sh ROOT [FILE...]: what each folder may see, as CMakeLists.txt says it (hearth_folder,
# hearth_program). The compiler itself says which headers a file reads, so neither spelling nor a
# detour through another header hides one.
#
# Three kinds of header:
#   ours    the folder's own, include/hearth/*.h, and those of the folders that it may see, but for
#           the ones that say of themselves "For this folder alone."
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
    execinfo immintrin langinfo libgen locale math net/if netdb netinet/in netinet/tcp nmmintrin
    poll pthread pwd
    sched search semaphore signal spawn stdatomic strings sys/epoll sys/eventfd sys/file sys/ioctl
    sys/mman sys/prctl sys/random sys/resource sys/sendfile sys/signalfd sys/socket sys/stat
    sys/statfs sys/statvfs sys/syscall sys/sysinfo sys/time sys/timerfd sys/types sys/uio sys/un
    sys/utsname sys/vfs sys/wait sys/xattr syscall termios threads time unistd linux/close_range
    linux/fs linux/futex linux/landlock linux/limits linux/magic linux/memfd linux/openat2 linux/pidfd linux/tcp"

# "FOLDER SEEN...", a line each; a group stands for its folders, transport's backends see what
# transport does.
arrows() {
    sed -e ':a' -e '/^hearth_[a-z]*([^)]*$/{N;s/\n */ /;ba' -e '}' CMakeLists.txt |
        sed -nE 's/^hearth_(folder|group)\(([^)]*)\).*/\1 \2/p; s/^hearth_program\([^ ]+ ([^)]*)\)/folder \1/p' |
        awk '$1 == "group" { for (i = 3; i <= NF; i++) g[$2] = g[$2] " " $2 "/" $i; next }
             { n = ""; for (i = 3; i <= NF; i++) n = n " " ($i in g ? g[$i] : $i); print $2 n }
             $2 == "transport" { print "transport/ofi transport" n; print "transport/tcp transport" n; print "transport/ucx transport" n }'
}
arrows >"$tmp/arrows"

# What FILE may read: seen, system, other. No time.h, pthread.h, unistd.h or sys/ in replication and
# loader: their state machines cannot look at the world.
rule() {
    seen='' system=$plain other='' folder=$(dirname "$1")
    case $1 in
    include/hearth/*) system='stddef stdint'; return ;;
    examples/*) system=$world other='mpi.h sodium sodium.h'; return ;;
    esac
    seen=$(awk -v f="$folder" '$1 == f { $1 = ""; print; found = 1 } END { exit !found }' "$tmp/arrows") ||
        { echo "$1 lies in no folder of CMakeLists.txt"; bad=1; return 1; }
    case $1 in replication/* | loader/*) ;; *) system=$world ;; esac
    case $1 in
    core/base/crc.c) other='isa-l' ;;
    core/base/auth.c) other='sodium sodium.h' ;;
    transport/ofi/*) other='rdma' ;;
    transport/ucx/*) other='ucm ucp ucs uct' ;;
    cli/sockets.c) system="$world linux/inet_diag linux/netlink linux/rtnetlink linux/sock_diag" ;;
    cli/see_limits.c) system="$world sys/timex" other='jansson.h jansson_config.h' ;;
    cli/*) other='jansson.h jansson_config.h' ;;
    esac
}

# Headers FILE reads, one real path a line; a missing one keeps the name it was given.
headers() {
    "$cc" -std=c17 -D_GNU_SOURCE -DHEARTH_ISAL -DHEARTH_POINTS -Iinclude -I. -x c -M -MG "$1" \
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

declare -A alone=()
while read -r h; do
    alone[$root/$h]=1
done < <(grep -rlF 'For this folder alone' --include='*.h' core transport replication loader \
    engine daemon client meeting cli 2>/dev/null)

# allowed HEADER FILE: by the lists of rule().
allowed() {
    local where list
    case $1 in
    "$root/$2" | "$root/include/hearth/"*) return 0 ;;
    "$root/"*)
        where=${1#"$root/"} list="$folder $seen"
        if [ -e "$1" ]; then where=${where%/*}; else where=${where%%/*} list=$other; fi # not installed
        if [ "$where" != "$folder" ] && [ -n "${alone[$1]:-}" ]; then return 1; fi
        ;;
    /usr/include/*) where=${1#/usr/include/} list=$other; where=${where%%/*} ;;
    *) return 1 ;;
    esac
    case " $list " in *" $where "*) return 0 ;; *) return 1 ;; esac
}

check() {
    local h
    rule "$1" || return 0
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
    mapfile -t files < <(find core transport replication loader engine daemon client meeting \
        cli examples include -name '*.[ch]' 2>/dev/null | sort)
    set -- "${files[@]}"
fi
for file; do
    check "$file"
done
exit $bad
