#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""decoders.py ROOT: every decoder of foreign bytes has a fuzz target.

tests/fuzz/decoders names functions and their targets. Here each function that others can call, that
is named as one which takes bytes apart and that is given some, must stand there; what stands there must exist, the
target with a corpus; and each target must stand there. By names and types alone: it is the one who writes such a
function under another name that has to think of it.

Exit status 1 where something is missing; each in a line of its own."""
import os
import re
import sys

FOLDERS = ("core", "transport", "replication", "loader", "engine", "client", "meeting", "daemon",
           "cli")
NAME = re.compile(r"(_decode|_parse|_message|_read|_unpack|_load(_values)?)$")
BYTES = re.compile(r"const (unsigned char|void|char|struct hth_frame|uint8_t) ?[*\w]|struct hth_reader \*|unsigned char \w+\[")
DEFINITION = re.compile(r"^(static )?(?:inline )?[a-z_0-9 ]+?[ *]+([a-z_0-9]+)\(([^;{}]*?)\)\n\{", re.M)
# Of the test's transport, and what hands on what was decoded, or fills no numbers in.
OTHERS = {"hth_content_read", "hth_tally_read"}


def functions(root):
    """{name: (file, takes bytes, static)}"""
    found = {}
    for folder in FOLDERS:
        for at, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                if not name.endswith(".c"):
                    continue
                path = os.path.join(at, name)
                with open(path, encoding="utf-8") as f:
                    text = f.read()
                for static, function, arguments in DEFINITION.findall(text):
                    found[function] = (os.path.relpath(path, root),
                                       bool(BYTES.search(" ".join(arguments.split()))), bool(static))
    return found


def rows(root):
    """{function: target}, "-" for none; and what is wrong with the list itself."""
    out, bad = {}, []
    with open(os.path.join(root, "tests/fuzz/decoders"), encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            if len(words) < 2 or (words[1] == "-") != (len(words) > 2) or words[0] in out:
                bad.append("tests/fuzz/decoders:%d: FUNCTION TARGET, or FUNCTION - REASON, once each" % number)
            else:
                out[words[0]] = words[1]
    return out, bad


def has_corpus(root, target):
    folder = os.path.join(root, "tests/fuzz/corpus", target)
    return os.path.isdir(folder) and any(not n.startswith(".") for n in os.listdir(folder))


def main():
    root = sys.argv[1]
    found = functions(root)
    listed, bad = rows(root)
    targets = {n[5:-2] for n in os.listdir(os.path.join(root, "tests/fuzz")) if re.match(r"fuzz_\w+\.c$", n)}
    for function, (path, takes_bytes, static) in sorted(found.items()):
        name = function[:-3] if function.endswith("_decode_as") else function
        if takes_bytes and not static and NAME.search(name) and name not in listed and name not in OTHERS:
            bad.append("%s: %s() takes foreign bytes apart and stands not in tests/fuzz/decoders" % (path, name))
    for function, target in sorted(listed.items()):
        if function not in found:
            bad.append("tests/fuzz/decoders: there is no %s()" % function)
        if target != "-" and target not in targets:
            bad.append("tests/fuzz/decoders: %s() has no target: there is no fuzz_%s.c" % (function, target))
    for target in sorted(targets):
        if target not in listed.values():
            bad.append("tests/fuzz/fuzz_%s.c: of no decoder in tests/fuzz/decoders" % target)
        if not has_corpus(root, target):
            bad.append("tests/fuzz/corpus/%s: nothing to replay" % target)
    print("\n".join(bad) if bad else "%d decoders, %d targets" % (len(listed), len(targets)))
    return bool(bad)


sys.exit(main())
