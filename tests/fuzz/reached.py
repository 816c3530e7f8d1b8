#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Of tests/coverage --decoders: which lines of decoders no input of the corpora has run, and what tests/fuzz/uncovered says of them.

A decoder is a function of tests/fuzz/decoders, the one of its name with _as, and the static functions of its file that
these name, at once or by another one or by a table of the file. What they call of other files is not theirs. A line is
known by its function and its text, spaces aside, so that the table outlives what is written above it."""
import collections
import os
import re

TABLE = re.compile(r"^static const [^;{}()]*?(\w+)(?:\[\w*\])+ = \{(.*?)\}\s*;", re.M | re.S)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
Line = collections.namedtuple("Line", "file number function text")


def decoders(root):
    """{function: target}, of those that have a target."""
    with open(os.path.join(root, "tests/fuzz/decoders"), encoding="utf-8") as f:
        rows = [line.split("#")[0].split() for line in f]
    return {row[0]: row[1] for row in rows if len(row) == 2}


class File:
    """Of one source: its text, how often each line ran, and where each function is."""

    def __init__(self, root, name):
        with open(os.path.join(root, name), encoding="utf-8") as f:
            self.text = f.read().split("\n")
        self.lines, self.functions = collections.Counter(), {}
        self.tables = {n: words(body) for n, body in TABLE.findall(COMMENT.sub(" ", "\n".join(self.text)))}

    def add(self, counted):
        for line in counted["lines"]:
            self.lines[line["line_number"]] += line["count"]
        for f in counted["functions"]:
            self.functions[f["name"]] = (f["start_line"], f["end_line"])

    def names(self, function):
        """What it names."""
        first, last = self.functions[function]
        return words(COMMENT.sub(" ", "\n".join(self.text[first - 1:last])))

    def is_static(self, function):
        return self.text[self.functions[function][0] - 1].startswith("static ")

    def reach(self, function):
        """The function and those of its file that serve it."""
        seen, to_do = set(), [function]
        while to_do:
            one = to_do.pop()
            if one in seen:
                continue
            seen.add(one)
            for name in self.tables.get(one) or self.names(one):
                if name in self.tables or (name in self.functions and self.is_static(name)):
                    to_do.append(name)
        return seen & set(self.functions)


def words(text):
    return set(re.findall(r"[A-Za-z_]\w*", text))


def files_of(root, counted):
    """{name: File} of what gcov has counted: (name, its JSON)."""
    out = {}
    for name, of in counted:
        if name.endswith(".c") and not name.startswith("tests/"):
            out.setdefault(name, None)
            out[name] = out[name] or File(root, name)
            out[name].add(of)
    return out


def missed(files, rows):
    """[Line] that nothing has run, {function} that was looked at; and which of the rows' functions there are not."""
    lines, looked, homes = set(), set(), {f: name for name, one in files.items() for f in one.functions}
    for function in rows:
        for root in (function, f"{function}_as"):
            if root not in homes:
                continue
            name = homes[root]
            for one in files[name].reach(root):
                looked.add(one)
                first, last = files[name].functions[one]
                for n in range(first, last + 1):
                    text = " ".join(files[name].text[n - 1].split())
                    if files[name].lines.get(n) == 0 and text not in ("", "{", "}"):
                        lines.add(Line(name, n, one, text))
    return sorted(lines), looked, [f for f in rows if f not in homes]


def size(files, looked):
    """Lines of the functions that were looked at."""
    return sum(first <= n <= last for one in files.values() for f, (first, last) in one.functions.items() if f in looked
               for n in one.lines)


def table(root):
    """Counter of (function, text), and what is wrong with the table itself."""
    rows, bad, function = collections.Counter(), [], None
    with open(os.path.join(root, "tests/fuzz/uncovered"), encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.strip() or line.startswith("#"):
                continue
            said = re.match(r"(\w+): \S", line)
            if line.startswith("    ") and function:
                rows[function, " ".join(line.split())] += 1
            elif said:
                function = said.group(1)
            else:
                bad.append(f"tests/fuzz/uncovered:{number}: FUNCTION: REASON, and its lines below, four spaces in")
    return rows, bad


def compare(lines, looked, rows):
    """What the table does not name, and what it names in vain; of functions that were not looked at it may say what it likes."""
    left, bad = collections.Counter({row: n for row, n in rows.items() if row[0] in looked}), []
    for line in lines:
        if left[line.function, line.text] > 0:
            left[line.function, line.text] -= 1
        else:
            bad.append(f"{line.file}:{line.number}: {line.text}    [{line.function}: no input reaches it]")
    bad += [f"tests/fuzz/uncovered: {function}: \"{text}\" is reached" for (function, text), n in sorted(left.items()) if n > 0]
    return bad
