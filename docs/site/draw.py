#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""draw.py ROOT [--check]: draws docs/pictures/*.svg, each from the .dot beside it, with Graphviz.

--check writes nothing: it names each picture that does not show what its text has. Places and sizes
are not compared, because they depend on the fonts of the machine."""
import glob
import os
import re
import shutil
import subprocess
import sys
import textwrap

LICENCE = "<!-- SPDX-License-Identifier: Apache-2.0 -->"


def drawn(source):
    done = subprocess.run(["dot", "-Tsvg", source], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{source}: {done.stderr.strip()}")
    svg = re.sub(r"<!--.*?-->\n", "", done.stdout[done.stdout.index("<svg"):], flags=re.S)
    return LICENCE + "\n" + re.sub(r"<[^>]*>", lambda tag: folded(tag.group()), svg)


def folded(tag):
    """In lines, as other files of the tree: a blank and the end of a line are the same in a tag."""
    return "\n".join(textwrap.wrap(tag, 68, break_long_words=False, break_on_hyphens=False))


def shown(svg):
    """What a picture shows: its nodes, edges and frames by name, words and colours."""
    return re.findall(r'<g id="[^"]*" class="\w+">|<title>.*?</title>|>[^<\s][^<]*</text>|'
                      r'(?:fill|stroke)="[^"]*"', re.sub(r"\s+", " ", svg))


def main(root, check):
    if not shutil.which("dot"):
        print("skip: no dot (Debian's package graphviz)")
        return 77
    folder = os.path.join(root, "docs", "pictures")
    bad, names = [], sorted(glob.glob(os.path.join(folder, "*.dot")))
    for source in names:
        target = source[:-len("dot")] + "svg"
        svg = drawn(source)
        if not check:
            with open(target, "w", encoding="utf-8") as f:
                f.write(svg)
            continue
        before = ""
        if os.path.exists(target):
            with open(target, encoding="utf-8") as f:
                before = f.read()
        if shown(before) != shown(svg):
            bad.append(f"{target}: does not show what {os.path.basename(source)} has: "
                       "docs/build --pictures draws it")
    for target in sorted(glob.glob(os.path.join(folder, "*.svg"))):
        if target[:-len("svg")] + "dot" not in names:
            bad.append(f"{target}: no text to make it from lies beside it")
    print("\n".join(bad) if bad else f"{len(names)} pictures")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:] == ["--check"]))
