#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail

help() {
    cat <<'H'
docs/model/check.sh: runs the models of commit, retention and recovery with SPIN, as docs/model/runs lists them.
Those that should hold do, and each rule left out is refuted: exit status 0. Needs spin and gcc; 77 without.

  check.sh                what a test run does: small bounds, and a fifth of what has its turn, by the commit's number
  check.sh --all          all small bounds, and all that is refuted
  check.sh --long         the larger bounds alone, minutes to an hour each; recorded in tests/on-demand.md
  check.sh --only NAME    one run; repeat for more
  check.sh --stories DIR  writes for each refuted run what happened, step by step
  check.sh --jobs N       runs at once (default 2)

A run with small bounds takes less than 120 MB, a larger one up to 16 GB.
H
}

turns=5 # of what has its turn, one in so many in each test run
here=$(cd "$(dirname "$0")" && pwd)
jobs=2 which=every stories='' names=()
while [ $# -gt 0 ]; do
    case $1 in
    --all | --long) which=${1#--}; shift ;;
    --only) names+=("${2:?--only needs a name}"); shift 2 ;;
    --stories) stories=$(mkdir -p "${2:?--stories needs a folder}" && cd "$2" && pwd); shift 2 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    -h | --help) help; exit 0 ;;
    *) echo "check.sh: unknown argument $1; see check.sh --help" >&2; exit 2 ;;
    esac
done
command -v spin >/dev/null || { echo "skip: no spin (Debian's package spin)"; exit 77; }
command -v gcc >/dev/null || { echo "skip: no gcc, which compiles what spin writes"; exit 77; }

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# What happened before the refutation, without the state that spin prints after it.
story() {
    spin "${switches[@]}" -t "$model.pml" 2>/dev/null | sed -nE '/ = /d; s/^ *((node|nodes|save|all|settled|copies|the|they|from|machine|coordinator|restart|\(|END).*)/\1/p'
}

# one NAME MODEL EXPECTED WHEN SWITCH...: says what came of it, in a line; not 0 when it is not what is expected.
one() {
    local name=$1 model=$2 expected=$3 when=$4 found states end optimise=-O0 bits=23 began=$SECONDS
    shift 4
    local switches=("$@") order=()
    mkdir "$tmp/$name" && cd "$tmp/$name" && cp "$here/$model.pml" . || return 1
    [ "$model" = hearth ] || order=(-DNOREDUCE) # its events are too large for spin's own reduction
    [ "$model/$expected" != hearth/0 ] || optimise=-O1 # elsewhere it costs more than it saves
    [ "$when" != long ] || { optimise=-O2; bits=28; }
    if ! spin "${switches[@]}" -a "$model.pml" >spin.out 2>&1 ||
        ! gcc "$optimise" -w -DSAFETY -DHC4 "${order[@]}" -DMEMLIM=16000 -o pan pan.c >gcc.out 2>&1; then
        echo "$name: does not build"
        cat spin.out gcc.out 2>/dev/null
        return 1
    fi
    ./pan -m300000 "-w$bits" -E >pan.out 2>&1
    found=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out)
    states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out)
    end='holds'
    [ "$found" = 0 ] || end="refuted in step $(sed -n 's/.*assertion violated.*(at depth \([0-9]*\)).*/\1/p' pan.out)"
    ! grep -qE 'Search not completed|max search depth too small' pan.out || [ "$found" = 1 ] || end='not finished' found=-
    echo "$name: $end; ${states:-0} states, $((SECONDS - began)) s; ${switches[*]}"
    [ -z "$stories" ] || [ ! -e "$model.pml.trail" ] || story >"$stories/$name.txt"
    cd / && rm -rf "${tmp:?}/$name"
    [ "$found" = "$expected" ] || { echo "$name: expected was $([ "$expected" = 0 ] && echo that it holds || echo that it is refuted)"; return 1; }
}

# The part whose turn it is.
turn=0
commit=$(git -C "$here" rev-parse --short=7 HEAD 2>/dev/null) && turn=$((0x$commit % turns))
index=0 ran=0
wanted() {
    if [ ${#names[@]} -gt 0 ]; then
        [[ " ${names[*]} " == *" $1 "* ]]
    elif [ "$which" = long ]; then
        [ "$2" = long ]
    else
        [ "$2" = every ] || { [ "$2" = turn ] && { [ "$which" = all ] || [ $((index++ % turns)) = $turn ]; }; }
    fi
}
while IFS='|' read -r name model expected when switches; do
    read -r name model expected when <<<"$name $model $expected $when"
    wanted "$name" "$when" || continue
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    # shellcheck disable=SC2086 # switches are words
    { one "$name" "$model" "$expected" "$when" $switches || touch "$tmp/.failed"; } &
    ran=$((ran + 1))
done < <(grep -vE '^(#|$)' "$here/runs")
wait
[ "$ran" -gt 0 ] || { echo "check.sh: no such run: ${names[*]}" >&2; exit 2; }
rc=0
[ ! -e "$tmp/.failed" ] || rc=1
[ "$which" != long ] || [ ${#names[@]} -gt 0 ] || "$here/../../tests/record" "docs/model/check.sh --long" $rc "$ran runs, $SECONDS s"
[ "$which" != every ] || [ ${#names[@]} -gt 0 ] || echo "$ran runs; of what has its turn, part $((turn + 1)) of $turns (check.sh --all runs all)"
exit $rc
