#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""runbook.py ROOT: docs/operate/runbook.md has what an operator may meet, and nothing else.

  events  each that the code logs at warn or error, by hth_say(), or at a level that the text of the
          call does not have. One that an entry names has to be in the code, at any level
  checks  each of the table HEALTH_CHECKS, engine/job/health.h
  codes   each HEARTH_E... of include/hearth/error.h

An entry is a heading of the third level, so that #peer-lost leads to it, with text below.
--list prints what the code has: name, levels, files. Exit status 1 where anything is wrong."""
import os
import re
import sys

FOLDERS = ("core", "transport", "replication", "loader", "engine", "meeting", "daemon",
           "client")
PAGE = "docs/operate/runbook.md"
# Functions that log: the place of the event, and the place of the level or what it always is.
SAYS = {"hth_say": (2, 1), "hth_line_add": (2, 1), "logs_line": (2, 1), "rule_out": (1, "warn"),
        "driver_give_up": (2, "error")}
ALSO = {"engine-crashed": ("error", "daemon/last_words.c"),  # in a signal's handler
        "log-held-back": ("warn", "engine/driver/log_system.c")}
EVENT = re.compile(r'"([a-z][a-z0-9]*(?:-[a-z0-9]+)*)"')
QUIET = re.compile(r"/\*.*?\*/", re.S)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


def arguments(text, at):
    """Of the call whose bracket opens at `at`."""
    out, depth, begin, i = [], 0, at + 1, at
    while i < len(text):
        c = text[i]
        if c == '"':
            i += 1
            while text[i] != '"':
                i += 2 if text[i] == "\\" else 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if (c == "," and depth == 1) or (depth == 0 and c == ")"):
            out.append(text[begin:i].strip())
            begin = i + 1
        if depth == 0:
            return out
        i += 1
    return out


def events(root):
    """{event: (levels, files)} of the code; levels may have "unknown"."""
    found = {name: ({level}, {path}) for name, (level, path) in ALSO.items()}
    for folder in FOLDERS:
        for where, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(where, name), root)
                if not name.endswith((".c", ".h")):
                    continue
                text = QUIET.sub("", read(root, path))
                for call in re.finditer(r"\b(%s)(\()" % "|".join(SAYS), text):
                    args, (event, level) = arguments(text, call.start(2)), SAYS[call.group(1)]
                    if len(args) <= event or re.match(r"(const|enum|struct) ", args[0]):
                        continue
                    levels = {level} if isinstance(level, str) else {
                        one.lower() for one in re.findall(r"HEARTH_LOG_(\w+)", args[level])}
                    for one in EVENT.findall(args[event]):
                        has = found.setdefault(one, (set(), set()))
                        has[0].update(levels or {"unknown"})
                        has[1].add(path)
    return found


def checks(root):
    text = read(root, "engine/job/health.h")
    table = re.search(r"#define HEALTH_CHECKS\(X\)((?:.*\\\n)*.*)", text)
    return set(re.findall(r"X\((\w+),", table[1]))


def codes(root):
    text = read(root, "include/hearth/error.h")
    return set(re.findall(r"\b(HEARTH_E[A-Z]+)\b\s*(?:=|,\s*-)", text))


def entries(text):
    """[(line, name, text below)]"""
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("### "):
            out.append([number, line[4:].strip(), ""])
        elif out and not line.startswith("#"):
            out[-1][2] += line.strip()
    return out


def compare(root):
    said, bad, named = events(root), [], {}
    must = {name: f"an event at {' or '.join(sorted(levels))} of {sorted(files)[0]}"
            for name, (levels, files) in said.items() if levels & {"warn", "error", "unknown"}}
    must.update({name: "a check of engine/job/health.h" for name in checks(root)})
    must.update({name: "a code of include/hearth/error.h" for name in codes(root)})
    for number, name, text in entries(read(root, PAGE)):
        if name in named:
            bad.append(f"{PAGE}:{number}: {name} has an entry in line {named[name]}")
        named.setdefault(name, number)
        if name not in must and name not in said:
            bad.append(f"{PAGE}:{number}: the code has no {name}")
        if not text:
            bad.append(f"{PAGE}:{number}: the entry of {name} has no text")
    bad += [f"{PAGE}: there is no entry for {name}, {what}" for name, what in sorted(must.items())
            if name not in named]
    return bad


def main():
    root = sys.argv[-1]
    if "--list" in sys.argv:
        for name, (levels, files) in sorted(events(root).items()):
            print(name, ",".join(sorted(levels)), " ".join(sorted(files)))
        print("checks", sorted(checks(root)), "codes", sorted(codes(root)))
        return 0
    bad = compare(root)
    print("\n".join(bad), end="\n" if bad else "")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
