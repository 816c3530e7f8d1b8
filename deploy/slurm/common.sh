# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154 # variables of settings
# Sourced by prolog, epilog and sweep. hearth_base has, for each job of this node:
#
#   <id>       the job's root: its tmpfs, mode 0700, the job user's
#   <id>.key   the job's key, mode 0600, the job user's
#   <id>.run   root's: user id, group id, and how often the job had been restarted when its run
#              on this node began

# shellcheck source=settings
. "${0%/*}/settings"
export PATH
umask 077

# One script of a node changes hearth_base at a time.
lock_base() {
    mkdir -p "$hearth_base" && chmod 0755 "$hearth_base" && exec 9>"$hearth_base/lock" &&
        flock -w 60 9
}

# restarts_of ID: how often Slurm has restarted the job. Fails where the controller does not answer.
restarts_of() {
    timeout 20 scontrol --oneliner show job "$1" 2>/dev/null |
        sed -n 's/.* Restarts=\([0-9]*\) .*/\1/p' | grep .
}

# job_is_over ID: Slurm knows that it neither runs nor waits. No answer is no.
job_is_over() {
    if state=$(timeout 20 squeue --noheader --states=all --jobs="$1" --format=%T 2>&1); then
        case $state in
        BOOT_FAIL | CANCELLED | COMPLETED | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | \
            TIMEOUT | PREEMPTED | REVOKED | '') return 0 ;;
        esac
        return 1
    fi
    case $state in *'Invalid job id'*) return 0 ;; esac
    return 1
}

# as_user COMMAND...: as the job's user, whose files could otherwise mislead root.
as_user() {
    setpriv --reuid="$uid" --regid="$gid" --clear-groups "$@"
}

# stop_engines: those of this job and node, which are the only processes with its root as argument.
stop_engines() {
    for try in TERM TERM TERM KILL; do
        pids=$(as_user pgrep -x -u "$uid" -f "(.*/)?hearthd .*--root $root( .*)?") || return 0
        # shellcheck disable=SC2086 # pids
        as_user kill -s "$try" $pids 2>/dev/null
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            # shellcheck disable=SC2086 # pids
            as_user kill -0 $pids 2>/dev/null || break
            sleep 0.3
        done
    done
}

# remove_job ID: engines, saves, tmpfs, key.
remove_job() {
    root=$hearth_base/$1
    read -r uid gid _ <"$root.run" || return 0
    stop_engines
    if mountpoint -q "$root"; then
        umount "$root" || umount --lazy "$root"
    elif [ -d "$root" ]; then
        as_user find "$root" -mindepth 1 -xdev -delete
    fi
    rm -f "$root.key"
    rmdir "$root" 2>/dev/null
    [ -e "$root" ] || rm -f "$root.run"
}

# remove_old ID: jobs that are over and whose epilog has kept their saves or could not run; not ID.
remove_old() {
    for run in "$hearth_base"/*.run; do
        id=${run##*/} id=${id%.run}
        [ -e "$run" ] && [ "$id" != "$1" ] && job_is_over "$id" && remove_job "$id"
    done
    return 0
}
