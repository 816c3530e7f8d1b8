#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Slurm's own daemons run the scripts of deploy/slurm: a job on two of three nodes loses one, Slurm
# requeues it, and it resumes from memory. At its end nothing of it is left on any node.
#
#   tests/install/slurm.sh [BUILD]        BUILD: build/debug
#
# A node is a slurmd in a process and mount namespace of its own: killing that namespace's init ends
# slurmd, engine and ranks, and takes the tmpfs along. Prints "ok NAME", "FAIL NAME: …" or
# "skip NAME: reason".
# shellcheck disable=SC2317 # deadline and trap call functions
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
build=$(realpath "${1:-build/debug}")
why=
for program in munged slurmctld slurmd sbatch; do
    command -v $program >/dev/null ||
        why="$program is not installed (packages_slurm of deploy/packages)"
done
[ -n "$why" ] || unshare --pid --mount --fork mount -t tmpfs hearth /mnt 2>/dev/null ||
    why="needs the right to make namespaces and to mount"
if [ -n "$why" ]; then
    echo "skip slurm: $why"
    exit 77
fi

work=$(mktemp -d /var/tmp/hearth-slurm.XXXXXX) # not in /tmp: each node has one of its own
chmod 755 "$work"
export SLURM_CONF=$work/slurm.conf
declare -A pid
failed=0
result() { # NAME STATUS TEXT
    if [ "$2" = 0 ]; then echo "ok slurm.$1"; else
        echo "FAIL slurm.$1: $3"
        failed=1
    fi
}

deadline() { # SECONDS COMMAND...: until it is true
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}

end() {
    local one
    trap - EXIT
    if [ "$failed" = 1 ]; then
        tail -n 40 "$work"/job.out "$work"/log/* 2>/dev/null
        squeue 2>&1
    fi
    for one in "${pid[@]}"; do kill -9 "$one" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$work"
}
trap 'failed=1; end; exit 1' INT TERM
trap end EXIT

port() {
    python3 -c 'import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

configure() {
    mkdir -p "$work"/{log,state,site,hearth,tmp,spool.n1,spool.n2,spool.n3} || return 1
    head -c 1024 /dev/urandom >"$work/munge.key" && chmod 400 "$work/munge.key"
    cp deploy/slurm/{prolog,epilog,sweep,task-prolog,common.sh} "$work/site/" || return 1
    head -c 32 /dev/urandom >"$work/site/secret" && chmod 400 "$work/site/secret"
    sed -e "s|^hearth_base=.*|hearth_base=$work/hearth|; s|^hearth_size=.*|hearth_size=64m|" \
        -e "s|^hearth_secret=.*|hearth_secret=$work/site/secret|" \
        -e "s|^PATH=.*|PATH=$build/bin:$PATH|" deploy/slurm/settings >"$work/site/settings"
    echo "PMIxCliTmpDirBase=$work/tmp" >"$work/mpi.conf"
    cat >"$SLURM_CONF" <<C
ClusterName=hearth
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$(port)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket=$work/munge.sock
StateSaveLocation=$work/state
SlurmctldPidFile=$work/slurmctld.pid
SlurmctldLogFile=$work/log/slurmctld
SlurmdPidFile=$work/slurmd.%n.pid
SlurmdLogFile=$work/log/slurmd.%n
SlurmdSpoolDir=$work/spool.%n
SlurmdTimeout=4
MessageTimeout=5
KillWait=3
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
Prolog=$work/site/prolog
PrologFlags=Alloc
Epilog=$work/site/epilog
TaskProlog=$work/site/task-prolog
NodeName=n1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$(port)
NodeName=n2 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$(port)
NodeName=n3 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$(port)
PartitionName=p Nodes=n[1-3] Default=YES State=UP
C
}

node() { # NAME: a machine with its own processes, mounts and temporary files
    # shellcheck disable=SC2016 # expanded inside
    unshare --pid --mount --fork --kill-child --mount-proc bash -c '
        mount -t tmpfs tmp "$1/tmp" && mount -t tmpfs -o mode=755 base "$1/hearth" &&
            mount --bind "$1/tmp" /tmp && slurmd -N "$2" -D >"$1/log/$2.out" 2>&1 &
        while :; do sleep 1000 & wait; done' "$1" "$work" "$1" </dev/null >/dev/null 2>&1 &
    pid[$1]=$!
    disown # no line of bash when it is killed
}

in_node() { # NAME COMMAND...
    local init
    init=$(pgrep -P "${pid[$1]}" | head -n 1)
    shift
    nsenter -t "$init" -m -p -- "$@"
}

left() { # NAME: what of Hearth is on that node
    # shellcheck disable=SC2016 # expanded inside
    in_node "$1" sh -c 'find "$1" -mindepth 1 ! -name lock; grep " $1/" /proc/mounts
        ps -eo args | grep "[h]earthd"' sh "$work/hearth"
}

empty() { [ -z "$(left "$1")" ]; }
idle() { [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = "$1" ]; }
said() { grep -q "$1" "$work/job.out" 2>/dev/null; }
state() { [ "$(scontrol -o show job "$job" | grep -o 'JobState=[A-Z]*')" = "JobState=$1" ]; }
gone() { [ -z "$(squeue -h 2>/dev/null)" ]; }

configure || exit 1
munged --foreground --force --socket="$work/munge.sock" --key-file="$work/munge.key" \
    --pid-file="$work/munged.pid" --log-file="$work/log/munged" --seed-file="$work/seed" \
    >/dev/null 2>&1 &
pid[munged]=$!
deadline 10 test -S "$work/munge.sock" || { result start 1 "munged does not run"; exit 1; }
slurmctld -D >"$work/log/ctld.out" 2>&1 </dev/null &
pid[ctld]=$!
for n in n1 n2 n3; do node $n; done
deadline 20 idle 3
result start $? "three nodes are not idle within 20 s" || exit 1
[ "$failed" = 0 ] || exit 1

cat >"$work/rank" <<'R'
#!/bin/sh
# The kernel's boot id is the same on all nodes here.
export HEARTH_MACHINE=$SLURMD_NODENAME
echo "rank $SLURM_PROCID: on $SLURMD_NODENAME"
exec "$@"
R
chmod 755 "$work/rank"

submit() { # LAST
    rm -f "$work/job.out"
    job=$(cd "$work" && sbatch --parsable -o "$work/job.out" "$OLDPWD/deploy/slurm/train.sbatch" \
        "$work/rank" "$build/bin/slurm_job" "$1")
}

# A node is lost in the middle.
submit 100000
deadline 40 said 'rank 0: protected step 3'
result saves $? "no step 3 within 40 s"
victim=$(sed -n 's/^rank 1: on //p' "$work/job.out" | head -n 1)
survivor=$(sed -n 's/^rank 0: on //p' "$work/job.out" | head -n 1)
[ "$(in_node "$survivor" stat -c %a "$work/hearth/$job")" = 700 ] &&
    in_node "$survivor" mountpoint -q "$work/hearth/$job"
result tmpfs $? "the job has no tmpfs of mode 0700"
kill -9 "${pid[$victim]}"
unset "pid[$victim]"
requeued() { scontrol -o show job "$job" | grep -q ' Restarts=1 .* StartTime='; }
deadline 60 requeued
result requeued $? "Slurm did not requeue the job within 60 s"
# Where that epilog has run, the saves are there still. Slurm would wait two minutes now.
kept() { state PENDING && [ -n "$(in_node "$survivor" ls "$work/hearth/$job/job-$job")" ]; }
deadline 20 kept
result keeps $? "$(left "$survivor" | paste -sd' ')"
scontrol update JobId="$job" StartTime=now
deadline 60 said 'rank 1: resumed'
result restarts $? "Slurm did not start it again within 60 s"
deadline 60 gone
[ "$(scontrol -o show job "$job" | grep -o 'Restarts=[0-9]* ')" = 'Restarts=1 ' ] && state COMPLETED
result completes $? "$(scontrol -o show job "$job" | grep -oE '(JobState|Restarts)=[^ ]*')"
protected=$(sed -n '/^restart 1/q; s/^rank [01]: protected step //p' "$work/job.out" |
    sort -n | tail -n 1)
steps=$(sed -n 's/^rank [01]: resumed at step \([0-9]*\), 0 words wrong$/\1/p' "$work/job.out" |
    sort -un)
[ "$(grep -c ', 0 words wrong$' "$work/job.out")" = 2 ] && [ "$(echo "$steps" | wc -l)" = 1 ] &&
    [ "${steps:-0}" -ge "$protected" ]
result resumes $? "resumed at ${steps:-nothing}; step $protected was protected"
nothing_left() { # NAME
    for n in "${!pid[@]}"; do
        case $n in n[123]) deadline 20 empty "$n" || break ;; esac
        n=
    done
    result "$1" $((${#n} > 0)) "$n: $(left "$n" | paste -sd' ' | cut -c1-600)"
}
nothing_left leaves-nothing
[ "$failed" = 1 ] || sed -n '/restart\|resumed/s/^/   /p' "$work/job.out"

# A job is requeued and then cancelled: no epilog comes any more, and sweep removes what is left.
submit 100000
deadline 40 said 'rank 0: protected step 1'
scontrol requeue "$job"
deadline 30 state PENDING
deadline 20 kept
result keeps-requeued $? "$(left "$survivor" | paste -sd' ' | cut -c1-600)"
for n in "${!pid[@]}"; do
    case $n in n[123]) in_node "$n" "$work/site/sweep" ;; esac
done
kept
result sweep-keeps $? "sweep removed saves of a job that waits"
scancel "$job"
deadline 20 gone
for n in "${!pid[@]}"; do
    case $n in n[123]) in_node "$n" "$work/site/sweep" ;; esac
done
nothing_left sweeps
exit $failed
