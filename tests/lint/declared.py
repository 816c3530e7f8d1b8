# SPDX-License-Identifier: Apache-2.0
"""The declarations of the public headers, for manual.py: names, prototypes, layouts."""
import os
import re


def flat(text):
    """Without comments, with one blank between words and none where none is needed."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"\s*([(){}\[\],;*=])\s*", r"\1", " ".join(text.split()))
    return text.replace(",}", "}")


def functions_in(text):
    """{name: prototype}; struct hearth_x *hearth_y(...) too"""
    text = re.sub(r"\{[^{}]*\}", " ", re.sub(r"/\*.*?\*/", " ", text, flags=re.S))
    found = {}
    for one in text.split(";"):
        name = re.search(r"\b(hearth_\w+)\s*\(", one)
        if name and "typedef" not in one and "=" not in one:
            found.setdefault(name[1], flat(one))
    return found


def layouts_in(text):
    """{"struct hearth_x": "struct hearth_x{...}"} of structs and enums, and of function types"""
    found = {}
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    for begin in re.finditer(r"\b((?:struct|enum) hearth_\w+)\s*\{", text):
        depth, at = 1, begin.end()
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        found[begin[1]] = flat(text[begin.start():at])
    for one in re.finditer(r"typedef [^;{]*?\b(hearth_\w+_fn)\([^;]*\)", text):
        found[one[1]] = flat(one[0])
    return found


class Headers:
    def __init__(self, folder):
        self.functions, self.layouts, self.names, self.codes = {}, {}, set(), set()
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                self.read(re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S))

    def read(self, text):
        calls = "".join(re.findall(r"^HEARTH_API ([^;]*;)", text, re.M))
        self.functions.update(functions_in(calls))
        layouts = layouts_in(re.sub(r"^\s*#.*$", "", text, flags=re.M))
        macros = set(re.findall(r"^#define (HEARTH_\w+)", text, re.M))
        rows = re.findall(r"\bX\((HEARTH_\w+),", text)
        self.codes |= {name for name in rows if name.startswith("HEARTH_E") and "CODES" in text}
        self.names |= set(self.functions) | set(rows)
        self.names |= {name for name in macros if not re.search(r"_H$|^HEARTH_X$", name)}
        self.names |= {f"{name}_init" for name in re.findall(r"^HEARTH_SIZED\((\w+)\)", text, re.M)}
        self.names |= set(re.findall(r"\b(?:struct|enum) (hearth_\w+)", text))
        for name, body in layouts.items():
            if name.startswith("enum"):
                self.names |= set(re.findall(r"\bHEARTH_\w+", body))
            self.layouts[name] = body
        self.names |= {name for name in layouts if name.endswith("_fn")}
        self.names.discard("HEARTH_X")
        # Those that a list of macros makes are documented by the list.
        for name in ("enum hearth_code", "enum hearth_dtype"):
            self.layouts.pop(name, None)
