#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

help() {
    cat <<'H'
tests/install/deb_root.sh OLD NEW: the Debian packages in a bare root, to be thrown away.

OLD and NEW are folders with the packages of two versions. In this order: the commands of
docs/start/c.md as they stand; a rank saves while NEW is installed over OLD, none of its saves
fails, and its engine lives on; the next rank resumes beside that engine, and after its end with a
new one, and the page's program still runs; all is purged, and no file of Hearth's is left.
H
}

[ $# = 2 ] || { help; exit 2; }
old=$(cd "$1" && pwd) new=$(cd "$2" && pwd)
top=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "deb_root: only as root, in a root that is thrown away" >&2; exit 2; }
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
tmp=$(mktemp -d)

# What is not of packages: caches, logs, and dpkg's own records.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /root \
        -o -path /var/cache -o -path /var/log -o -path /var/lib/apt -o -path /var/lib/dpkg \
        -o -path /srv -o -path "$top" -o -path /etc/ld.so.cache -o -name __pycache__ \) -prune \
        -o -print | sort
}
# What of dpkg's records names a package of ours.
records() { find /var/lib/dpkg /var/lib/systemd -name '*hearth*' 2>/dev/null | sort; }
installed() { dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' | awk '/^.i/ {print $2}' | sort; }
fail() { echo "deb_root: FAILED: $*"; exit 1; }
# said FILE WHAT COMMAND...: its output goes to FILE, and is printed where it fails.
said() {
    local file=$1 what=$2
    shift 2
    "$@" >"$file" 2>&1 </dev/null || { cat "$file"; fail "$what"; }
}
# rank_fails WHAT: with what the rank has printed.
rank_fails() {
    cat "$tmp/rank"
    fail "$1"
}

# The pids of the engines of this root; they outlive the ranks.
engines() {
    local process
    for process in /proc/[0-9]*; do
        [ "$process/root/" -ef / ] || continue # of this root, where several share one /proc
        tr '\0' ' ' 2>/dev/null <"$process/cmdline" | grep -qE "hearthd .*--root $1 " || continue
        echo "${process#/proc/}"
    done
}
end_engines() {
    local pid
    for pid in $(engines "$1"); do
        kill "$pid"
        while [ -e "/proc/$pid" ]; do sleep 0.05; done
    done
}

apt-get update -qq
files >"$tmp/before"
installed >"$tmp/installed"

# ---- the page ------------------------------------------------------------------------------
# shellcheck disable=SC2016 # no commands
sed -n '/^```sh packages$/,/^```$/p' "$top/docs/start/c.md" | grep -v '^```' >"$tmp/commands"
[ "$(grep -c '^[a-z./]' "$tmp/commands")" = 4 ] || fail "the page has another number of commands"
said "$tmp/page" "a command of c.md" env -C "$old" bash -e -x "$tmp/commands"
for line in "saved steps 1 to 5" "recovered step 5"; do
    grep -qx "$line" "$tmp/page" || { cat "$tmp/page"; fail "the example does not print: $line"; }
done
for library in libfabric1 libucx0; do
    ! installed | grep -qx $library || fail "hearth alone brings $library"
done
mv "$old/save_recover" "$tmp/"
end_engines /dev/shm/hearth
rm -rf /dev/shm/hearth
echo "deb_root: ok: the page's commands: install, compile, save, resume"

# ---- an upgrade while a rank saves ----------------------------------------------------------
said "$tmp/apt" "the other packages" apt-get install -y -qq "$old"/hearth-{ofi,ucx}_*.deb \
    "$old"/python3-hearth-checkpoint_*.deb
root=/dev/shm/hearth-upgrade
mkdir -m 700 $root
last() { sed -nE 's/^saved //p' "$tmp/rank" | tail -n 1; }
python3 "$top/debian/tests/resume" --save $root >"$tmp/rank" 2>&1 &
rank=$!
until [ "$(last)" ] && [ "$(last)" -ge 20 ]; do
    kill -0 $rank 2>/dev/null || rank_fails "the rank ended"
    sleep 0.1
done
engine=$(engines $root)
before=$(last)
said "$tmp/apt" "the upgrade" apt-get install -y -qq "$new"/*.deb
meanwhile=$(last)
until [ "$(last)" -ge $((meanwhile + 50)) ]; do
    kill -0 $rank 2>/dev/null || rank_fails "a save failed after the upgrade"
    sleep 0.1
done
[ "$(engines $root)" = "$engine" ] || fail "the upgrade ended engine $engine: $(engines $root)"
case $(readlink "/proc/$engine/exe") in
*'(deleted)') ;;
*) fail "the engine's program was not replaced: nothing is shown" ;;
esac
kill -9 $rank
wait $rank 2>/dev/null || true
echo "deb_root: ok: $(dpkg-query -W -f='${Version}' hearth) over a running engine: steps" \
    "$before to $meanwhile meanwhile, to $(last) after it, none failed"

killed=$(last)
resume() {
    rm -f $root.stop
    python3 "$top/debian/tests/resume" --save $root >"$tmp/rank" 2>&1 &
    rank=$!
    until [ "$(last)" ]; do
        kill -0 $rank 2>/dev/null || rank_fails "the rank of the new version ended"
        sleep 0.1
    done
    touch $root.stop
    wait $rank || rank_fails "the rank of the new version"
    [ "$(sed -nE 's/^resumed //p' "$tmp/rank")" -ge "$killed" ] ||
        rank_fails "it resumed before $killed"
    killed=$(last)
}
resume
[ "$(engines $root)" = "$engine" ] || fail "the new rank has another engine"
end_engines $root
resume
case $(readlink "/proc/$(engines $root)/exe") in
/usr/bin/hearthd) ;;
*) fail "the new rank has started no new engine" ;;
esac
said "$tmp/page" "a program that was built with the old version" \
    "$tmp/save_recover" /dev/shm/hearth
end_engines $root
end_engines /dev/shm/hearth
rm -rf $root $root.stop /dev/shm/hearth
echo "deb_root: ok: ranks of the new version resume with the old engine, and with a new one"

# ---- purge ---------------------------------------------------------------------------------
mapfile -t ours < <(installed | comm -13 "$tmp/installed" -)
said "$tmp/apt" "remove" apt-get remove -y -qq "${ours[@]}"
! dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' '*hearth*' 2>/dev/null | grep -v ^un ||
    fail "remove has left configuration files"
mapfile -t ours < <(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' | awk '/^rc/ {print $2}')
[ ${#ours[@]} = 0 ] || said "$tmp/apt" "purge" dpkg --purge "${ours[@]}"
files | comm -13 "$tmp/before" - >"$tmp/left"
records >>"$tmp/left"
grep hearth "$tmp/left" && fail "purge leaves this"
[ ! -s "$tmp/left" ] || { echo "deb_root: left by packages of Debian's:"; cat "$tmp/left"; }
echo "deb_root: ok: removed and purged: no file of Hearth's is left"
rm -rf "$tmp"
