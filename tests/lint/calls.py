#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""calls.py ROOT BUILD: which files and folders need which others, by the objects' symbols in BUILD.

  circle   files that need each other. tests/lint/pairs may name a pair that is one machine in two
           files, with its reason; at most three.
  arrow    a folder that uses a symbol of one that CMakeLists.txt does not let it see, or folders
           that need each other.
  name     a static function of one name in more than two files: a backtrace would not say where.

Exit status 1 where there is any; each in a line of its own."""
import collections
import os
import re
import subprocess
import sys

PAIRS_MAX = 3
FILES_MAX = 2  # of one static name
OURS = ("core", "transport", "replication", "loader", "engine", "daemon", "client", "meeting",
        "cli")


def objects(root, build):
    """{source: object} of all that is no test."""
    found = {}
    for at, _, names in os.walk(build):
        for name in names:
            path = os.path.join(at, name)
            source = re.sub(r"CMakeFiles/[^/]*\.dir/", "", os.path.relpath(path, build))[:-2]
            if name.endswith(".c.o") and source.split("/")[0] in OURS:
                if os.path.exists(os.path.join(root, source)):
                    found[source] = path
    return found


OVER_LIBC = {"fopen"}  # what a program of ours defines in the place of the C library's, for others


def symbols(path):
    """(defined, needed, static functions)"""
    out = subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout
    defined, needed, static = set(), set(), set()
    for line in out.splitlines():
        *_, kind, name = line.split()
        if name in OVER_LIBC:
            continue
        if kind == "U":
            needed.add(name)
        elif kind == "t" and "." not in name:
            static.add(name)
        elif kind in "TDBRVWC":
            defined.add(name)
    return defined, needed, static


def needs(of):
    """{source: {source: symbols}}"""
    where = {name: source for source, (defined, _, _) in of.items() for name in defined}
    edges = {source: collections.defaultdict(set) for source in of}
    for source, (_, needed, _) in of.items():
        for name in needed:
            if where.get(name, source) != source:
                edges[source][where[name]].add(name)
    return edges


def circles(edges):
    """Strongly connected components of more than one (Tarjan, without recursion)."""
    index, low, stack, on, out = {}, {}, [], set(), []
    for start in sorted(edges):
        work = [] if start in index else [(start, iter(sorted(edges[start])))]
        for node, _ in work:
            index[node] = low[node] = len(index)
            stack.append(node)
            on.add(node)
        while work:
            node, after = work[-1]
            for to in after:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on.add(to)
                    work.append((to, iter(sorted(edges.get(to, ())))))
                    break
                if to in on:
                    low[node] = min(low[node], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on.discard(part[-1])
                    if len(part) > 1:
                        out.append(sorted(part))
    return out


def groups_and_arrows(root):
    """{group: its folders} and {folder: folders it may see}, from CMakeLists.txt; a backend sees what
    transport does."""
    text = open(os.path.join(root, "CMakeLists.txt"), encoding="utf-8").read()
    groups, seen = {}, {}
    for kind, args in re.findall(r"^\s*hearth_(folder|group|program)\(([^)]*)\)", text, re.M):
        name, *rest = args.split()[kind == "program":]
        if kind == "group":
            groups[name] = [f"{name}/{part}" for part in rest]
        else:
            seen[name] = {one for part in rest for one in groups.get(part, [part])}
    for backend in ("transport/tcp", "transport/ofi", "transport/ucx"):
        seen[backend] = seen.get("transport", set()) | set(groups.get("transport", ["transport"]))
    return groups, seen


def pairs(root):
    """[{file, file}] of tests/lint/pairs: "FILE FILE reason"."""
    out = []
    path = os.path.join(root, "tests/lint/pairs")
    for line in open(path, encoding="utf-8") if os.path.exists(path) else ():
        words = line.split(None, 2)
        if words and not line.startswith("#"):
            if len(words) < 3:
                sys.exit(f"tests/lint/pairs: no reason: {line.strip()}")
            out.append(set(words[:2]))
    return out


def is_own(root, source, name):
    """The file itself has that function, not a header."""
    text = open(os.path.join(root, source), encoding="utf-8").read()
    return re.search(rf"^static\b[^;={{}}]*\b{re.escape(name)}\(", text, re.M) is not None


def main(root, build):
    bad = []
    of = {source: symbols(path) for source, path in objects(root, build).items()}
    if not of:
        sys.exit(f"{build}: no objects there")
    edges = needs(of)
    allowed = pairs(root)
    if len(allowed) > PAIRS_MAX:
        bad.append(f"tests/lint/pairs: {len(allowed)} pairs, and {PAIRS_MAX} are allowed")
    found = circles(edges)
    for circle in found:
        if set(circle) not in allowed:
            bad.append("circle: " + " ".join(circle))
            bad += [f"    {a} needs {b}: {' '.join(sorted(edges[a][b]))}"
                    for a in circle for b in circle if b in edges[a]]
    for pair in allowed:
        if pair not in [set(circle) for circle in found]:
            bad.append("tests/lint/pairs: no pair any more: " + " ".join(sorted(pair)))
    _, may = groups_and_arrows(root)
    between = {folder: {} for folder in may}
    for a in sorted(edges):
        for b in sorted(edges[a]):
            here, there = os.path.dirname(a), os.path.dirname(b)
            if here != there:
                between.setdefault(here, {})[there] = 1
                if there not in may.get(here, ()):
                    bad.append(f"arrow: {a} uses {b}: {' '.join(sorted(edges[a][b]))}")
    bad += ["arrow: folders in a circle: " + " ".join(circle) for circle in circles(between)]
    names = collections.defaultdict(list)
    for source, (_, _, static) in of.items():
        for name in static:
            names[name].append(source)
    for name, files in sorted(names.items()):
        own = [f for f in files if is_own(root, f, name)] if len(files) > FILES_MAX else []
        if len(own) > FILES_MAX:
            bad.append(f"name: {name}() is static in {len(own)} files: {' '.join(sorted(own))}")
    print("\n".join(bad) if bad else f"{len(of)} files, {len(allowed)} pairs, no circle")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
