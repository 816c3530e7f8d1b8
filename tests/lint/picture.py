#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""picture.py ROOT: docs/design/architecture.md and its picture against the tree.

  folders  its table has each folder that has C files, once, and what CMakeLists.txt lets it see
  picture  docs/pictures/folders.dot has every folder of CMakeLists.txt, and `a -> b` only where a
           may see b; an arrow to a frame (lhead) stands for all folders in it
  walk     `path/file.c: function()`: that file has that function; each folder on the way is named"""
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
from calls import OURS, groups_and_arrows  # noqa: E402


def c_folders(root):
    out = subprocess.run(["git", "-C", root, "ls-files", "*.c"], check=True, capture_output=True, text=True)
    return {os.path.dirname(f) for f in out.stdout.split() if f.split("/")[0] in OURS}


def table(text):
    """{folder: folders it stands on} of the rows "| `folder/` | idea | stands on |"."""
    rows = {}
    for folders, stands in re.findall(r"^\| ((?:`[a-z/]+/`,? ?)+)\|[^|]*\|([^|]*)\|$", text, re.M):
        for folder in re.findall(r"`([a-z/]+)/`", folders):
            if folder in rows:
                sys.exit(f"architecture.md: {folder}/ has two rows")
            rows[folder] = set(re.findall(r"[a-z][a-z/]*", stands))
    return rows


def arrows(root):
    """(user, used, frame) of each arrow of the picture; without a frame it leads to a folder."""
    with open(os.path.join(root, "docs/pictures/folders.dot"), encoding="utf-8") as f:
        picture = f.read()
    arrow = r'"([a-z/]+)" -> "([a-z/]+)"(?: \[lhead="cluster_([a-z]+)"\])?$'
    return re.findall(arrow, picture, re.M)


def main(root):
    bad = []
    text = open(os.path.join(root, "docs/design/architecture.md"), encoding="utf-8").read()
    groups, may = groups_and_arrows(root)

    def wide(names):
        return {one for name in names for one in groups.get(name, [name])}

    rows = table(text)
    for folder in sorted(c_folders(root) - set(rows)):
        bad.append(f"architecture.md: no row for {folder}/")
    for folder, stands in sorted(rows.items()):
        if folder not in may:
            bad.append(f"architecture.md: {folder}/ is no folder of CMakeLists.txt")
        elif wide(stands) != may[folder]:
            bad.append(f"architecture.md: {folder}/ stands on {' '.join(sorted(may[folder])) or 'nothing'}, "
                       f"not on {' '.join(sorted(stands)) or 'nothing'}")
    drawn = set()
    for user, used, frame in arrows(root):
        drawn |= {user, used}
        for one in wide([frame or used]):
            if user not in may or one not in may[user]:
                bad.append(f"folders.dot: the picture lets {user}/ see {one}/")
    for folder in sorted(may):
        if folder not in drawn:
            bad.append(f"folders.dot: {folder}/ is not in the picture")
    walked = re.findall(r"`([a-z_/]+\.c): ([a-z_]+)\(\)`", text)
    if len(walked) < 10:
        bad.append("architecture.md: there is no walk")
    for path, function in walked:
        full = os.path.join(root, path)
        code = open(full, encoding="utf-8").read() if os.path.exists(full) else ""
        if not re.search(rf"^[a-z][^;={{}}]*\b{function}\([^;]*?\)\n{{", code, re.M | re.S):
            bad.append(f"architecture.md: {path} has no {function}()")
    print("\n".join(bad) if bad else f"{len(rows)} folders, {len(walked)} steps of the walk")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
