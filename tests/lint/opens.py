#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""opens.py ROOT: files are opened in one place.

No source but core/base/open.c opens anything by its name, whatever the call; and none asks about or changes a file by a
path, which may lead elsewhere by then: that is done relative to an open directory. ALLOWED names those who may, each
with what the path is.

Exit status 1 where another one does; each in a line of its own."""
import os
import re
import sys

FOLDERS = ("core", "transport", "replication", "loader", "engine", "client", "meeting", "daemon",
           "cli")
HELPER = "core/base/open.c"
OPENS = "open open64 openat openat64 openat2 creat creat64 fopen fopen64 freopen freopen64 opendir scandir fdopenat " \
        "mkstemp mkostemp mkdtemp open_by_handle_at open_tree nftw ftw fts_open shm_open".split()
PATHS = "stat lstat stat64 lstat64 access euidaccess statfs statvfs realpath readlink unlink remove rename mkdir rmdir " \
        "chmod lchmod chown lchown link symlink truncate mkfifo mknod utimes chdir chroot".split()
ALLOWED = {
    ("engine/driver/key_watch.c", "lstat"): "the key file, as its administrator names it",
    ("core/base/own_dir.c", "realpath"): "where the library is installed, an absolute path",
    ("client/link/command.c", "access"): "where the engine is installed",
    ("client/link/inside.c", "access"): "where the engine is installed",
    ("transport/module.c", "access"): "where backends are installed",
    ("daemon/successor.c", "readlink"): "/proc/self/exe",
    ("transport/machine.c", "readlink"): "/sys",
    ("core/store/pages.c", "realpath"): "the root, beside the kernel's list of mounts",
    ("core/store/theirs.c", "realpath"): "a text to compare links with",
    ("cli/place.c", "realpath"): "a text to compare links with",
    ("cli/exporter.c", "lstat"): "the socket of --listen, a path of the user's",
    ("cli/exporter.c", "unlink"): "the socket of --listen, a path of the user's",
    ("cli/remove.c", "lstat"): "a path of the user's, opened part by part later",
    ("cli/remove.c", "realpath"): "a path of the user's, opened part by part later",
}
CALL = re.compile(r"(?<![\w.>*])(?:\(\s*)?(%s)\s*\)?\s*\(" % "|".join(OPENS + PATHS))
SYSCALL = re.compile(r"\b(?:SYS|__NR)_(open\w*|creat)\b")
QUIET = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def calls(text):
    """(line, name) of each, comments and strings left out."""
    text = QUIET.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    for pattern in (CALL, SYSCALL):
        for m in pattern.finditer(text):
            yield text.count("\n", 0, m.start(1)) + 1, m.group(1)


def main():
    root = sys.argv[1]
    bad, used, files = [], set(), 0
    for folder in FOLDERS:
        for at, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(at, name), root)
                if not name.endswith((".c", ".h")) or path == HELPER:
                    continue
                files += 1
                with open(os.path.join(root, path), encoding="utf-8") as f:
                    text = f.read()
                for line, call in calls(text):
                    used.add((path, call))
                    if (path, call) not in ALLOWED:
                        bad.append("%s:%d: %s() by name: core/base/open.h opens; relative to an open directory what "
                                   "else there is" % (path, line, call))
    for path, call in sorted(set(ALLOWED) - used):
        if os.path.exists(os.path.join(root, path)):
            bad.append("tests/lint/opens.py: %s calls no %s() any more" % (path, call))
    print("\n".join(bad) if bad else "%d files" % files)
    return bool(bad)


sys.exit(main())
