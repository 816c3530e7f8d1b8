#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# opens_test.sh ROOT: opens.py sees a file that is opened by its name, however, and nothing else, in a tree of its own.
set -eu
root=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/core/base" "$tmp/engine/driver" "$tmp/cli"
echo 'int hth_open_named(const char *path, int flags) { return open(path, flags); }' >"$tmp/core/base/open.c"
bad=0

lint() { "$root/tests/lint/opens.py" "$tmp" >"$tmp/said" 2>&1; }

# shellcheck source=noticed.sh
. "$root/tests/lint/noticed.sh"

# takes TEXT: nothing is said of it.
takes() {
    printf '%s\n' "$1" >"$tmp/engine/a.c"
    lint || { echo "refused: $1"; cat "$tmp/said"; bad=1; }
}

# refuses CALL TEXT: it is named, with its line.
refuses() {
    printf '\n%s\n' "$2" >"$tmp/engine/a.c"
    says "engine/a.c:2: $1() by name"
}

takes 'int fd = hth_open_below(dir, name, O_RDONLY, 0);'
takes 'rc = f->open(f->self) || a.open(b) || driver_open(c) || reopen(d);'
takes '/* open(path) is not called, nor fopen(path). */ const char *t = "open(2)";'
takes 'fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW); unlinkat(dir, name, 0); renameat(a, b, c, d); fstat(fd, &st);'
takes 'int (*open)(void *self);'
refuses open 'int fd = open(path, O_RDONLY);'
refuses open 'int fd = (open)(path, O_RDONLY);'
refuses openat 'int fd = openat(dir, name, O_NOFOLLOW);'
refuses openat2 'long fd = syscall(SYS_openat2, dir, name, &how, sizeof(how));'
refuses fopen 'FILE *f = fopen (path, "re");'
refuses opendir 'DIR *d = opendir(path);'
refuses mkstemp 'int fd = mkstemp(path);'
refuses stat 'if (stat(path, &st))'
refuses unlink '    unlink(path);'
refuses rename '    rename("a//b", to);'
echo 'int x;' >"$tmp/engine/a.c"
echo 'int y;' >"$tmp/engine/driver/key_watch.c"
says 'key_watch.c calls no lstat() any more'
exit $bad
