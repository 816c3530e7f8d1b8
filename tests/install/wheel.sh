#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The wheel of deploy/package: each Python from 3.10 on that is here imports it and finds its
# library and programs in it; a rank saves, is killed with its engine and resumes; pip uninstalls
# it, and nothing is left. HEARTH_LONG=1: also beside PyPI's package `hearth`, which is another
# project's.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
top=$PWD
work=$(mktemp -d)
shm=$(mktemp -d -p /dev/shm hearth-wheel.XXXXXX)
trap 'rm -rf "$work" "$shm"' EXIT
unset HEARTH_LIBRARY PYTHONPATH

fail() {
    echo "FAIL wheel: $*"
    exit 1
}
deploy/package wheel >"$work/log" 2>&1
case $? in
0) ;;
2) echo "skip wheel: $(tail -n 1 "$work/log")" && exit 0 ;;
*) fail "$(tail -n 3 "$work/log" | tr '\n' ' ')" ;;
esac
wheels=("$top"/build/packages/hearth_checkpoint-*.whl)
[ ${#wheels[@]} = 1 ] || fail "these are not one wheel: ${wheels[*]}"
[[ ${wheels[0]##*/} == *-py3-none-manylinux_*_"$(uname -m)".whl ]] ||
    fail "${wheels[0]##*/} is not for every Python"

cat >"$work/rank.py" <<'P'
import os, signal, sys
from hearth_checkpoint import _ffi
from hearth_checkpoint.job import Job

lies, root, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
if not _ffi.library()._name.startswith(lies):
    sys.exit(f"the library is {_ffi.library()._name}, not the wheel's")
job = Job.open(root + "/job", rank=0, world=1, allow_degraded=True, linger_s=60)
found = job.recover()
step = found.step if found else 0
print("from", step, flush=True)
if found:
    (item,) = found.items()
    value, = found.read_ranges([(item.object, item.offset, item.nbytes)])
    if value != b"value %d" % found.step:
        sys.exit(f"step {found.step} has {value!r}")
    found.close()
for step in range(step + 1, last + 1):
    save = job.begin(step=step, nbytes=1 << 20)
    save.add_bytes([(b"key", b"value %d" % step)])
    save.commit().wait("PROTECTED")
if last == 3:
    os.kill(os.getpid(), signal.SIGKILL)
job.close(keep=False)
P

pythons=()
for python in python3.{10..14} "$HOME"/.pyenv/versions/3.1[0-4].*/bin/python; do
    python=$(command -v "$python" 2>/dev/null) || continue
    version=$("$python" -c 'import sys, venv; print("3.%d" % sys.version_info[1])' 2>/dev/null) ||
        continue
    [[ " ${pythons[*]} " == *" $version="* ]] || pythons+=("$version=$python")
done
lacks=''
for version in 3.{10..14}; do
    [[ " ${pythons[*]}" == *" $version="* ]] || lacks+=" $version"
done
[ ${#pythons[@]} -gt 0 ] || fail "there is no Python from 3.10 on here"

# Each place of a venv, but for what Python compiles.
places() {
    (cd "$1" && find . -name __pycache__ -prune -o -print | sort)
}
for python in "${pythons[@]}"; do
    version=${python%%=*} venv=$work/${python%%=*}
    "${python#*=}" -m venv "$venv" >"$work/log" 2>&1 || {
        lacks+=" $version" # Debian has it without venv
        continue
    }
    places "$venv" >"$work/before"
    "$venv/bin/pip" install -q --no-index --no-deps "${wheels[0]}" >"$work/log" 2>&1 ||
        fail "Python $version: $(tail -n 1 "$work/log")"
    lies=$("$venv/bin/python" -c 'import hearth_checkpoint as h; print(h.__path__[0])')
    bash -c '"$@"; exit $?' - timeout -k 5 60 \
        "$venv/bin/python" "$work/rank.py" "$lies" "$shm" 3 >"$work/first" 2>&1
    [ $? = 137 ] || fail "Python $version: the rank was not killed: $(tail -n 2 "$work/first")"
    engine=$("$venv/bin/hearth" ls --json --root "$shm" job |
        sed -nE 's/.*"engine_pid": *([0-9]+).*/\1/p')
    [ "$(readlink "/proc/${engine:-0}/exe")" = "$lies/_native/bin/hearthd" ] ||
        fail "Python $version: the engine is not the wheel's: ${engine:-none}"
    kill -9 "$engine"
    timeout -k 5 60 "$venv/bin/python" "$work/rank.py" "$lies" "$shm" 5 >"$work/second" 2>&1 ||
        fail "Python $version: $(tail -n 2 "$work/second" | tr '\n' ' ')"
    grep -qx 'from 3' "$work/second" || fail "Python $version: resumed $(head -n 1 "$work/second")"
    said="hearth $("$venv/bin/python" -c 'import hearth_checkpoint as h; print(h.__version__)')"
    [ "$("$venv/bin/hearth" --version)" = "$said" ] || fail "Python $version: hearth --version"
    if [ "${HEARTH_LONG:-}" = 1 ] && "$venv/bin/pip" install -q hearth >"$work/log" 2>&1; then
        "$venv/bin/python" -c 'import hearth, hearth_checkpoint' >"$work/log" 2>&1 ||
            fail "Python $version: beside PyPI's hearth: $(tail -n 1 "$work/log")"
        echo "ok wheel-beside-hearth-$version"
        "$venv/bin/pip" freeze | grep -v '^hearth-checkpoint' | cut -d= -f1 >"$work/others"
        xargs "$venv/bin/pip" uninstall -q -y <"$work/others" >"$work/log" 2>&1
    fi
    "$venv/bin/pip" uninstall -q -y hearth-checkpoint >"$work/log" 2>&1
    places "$venv" | diff "$work/before" - >"$work/left" ||
        fail "Python $version: uninstalled, and there is $(tr '\n' ' ' <"$work/left")"
    [ -z "$(ls -A "$shm")" ] || fail "Python $version: in $shm there is $(ls -A "$shm")"
    echo "ok wheel-$version"
done
for version in $lacks; do echo "skip wheel-$version: it is not here, or makes no venv"; done
