#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""options.py ROOT BUILD: texts about options agree with the table of options.

The table is core/base/options.def, as `BUILD/bin/hearth ls --env --json` prints it. Compared with it:

  docs/man/hearth_opts.3   each option: variable, range or words, default, line of help, and whether
                           ranks or a running engine must agree; each variable that is no option
  docs/man/hearthd.8       each flag: value, default, line of help
  docs/api.md              names the options that ranks or a running engine must agree on
  include/hearth/opts.h    numbers of which a comment says "0: N"
  the Python package       fields, their order and types; words with their numbers;
                           dtypes with theirs, of include/hearth/dtype.h
  all of ROOT              no variable HEARTH_... is read, set or documented that is not in the table

Text may say more than the table, nothing else. Exit status 1 where there is anything."""
import ast
import json
import os
import re
import subprocess
import sys

BINDING = "adapters/pytorch/hearth_checkpoint/_ffi.py"
CTYPES = {"text": "STR", "address": "STR", "list": "P", "u32": "U32", "u64": "U64", "switch": "U32",
          "word": "U32", "count": "SIZE", "pointer": "P"}
SKIP_DIRS = {".git", "build", "data", "corpus", "__pycache__"}
SKIP_FILES = {"tests/lint/options_test.sh", "tests/lint/docs_test.sh",  # they plant mistakes
              "CHANGELOG.md"}  # it names what is gone, too
NAME = r"(HEARTH_[A-Z][A-Z0-9_]*[A-Z0-9])"
READS = re.compile(r"(?:getenv\(|environ(?:\.get\(|\.pop\(|\.setdefault\(|\[)|env_number\()\s*[\"']" + NAME)
SHELL = re.compile(r"(?:\$\{?" + NAME + r"|(?<![\w-])" + NAME + r"=)")
QUOTED = re.compile(r"`" + NAME + r"(?:=[^`]*)?`")

bad = []


def say(where, what):
    bad.append(f"{where}: {what}")


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


def plain(text):
    """Of roff or C: words with one blank between."""
    text = re.sub(r"\\f(\[\w*\]|.)", "", text).replace("\\-", "-").replace("\\&", "")
    return " ".join(text.split())


def macro(line):
    """The words of a font macro as they are printed: .BR sets its arguments without a blank."""
    kind, _, rest = line.partition(" ")
    words = [a or b for a, b in re.findall(r'"([^"]*)"|(\S+)', rest)]
    return ("" if kind in (".BR", ".BI", ".RI", ".IR", ".RB", ".IB") else " ").join(words)


def entries(text):
    """{first word of a tag: (tag, body)} of the paragraphs that begin with .TP."""
    out = {}
    for block in re.split(r"^\.TP\n", text, flags=re.M)[1:]:
        lines = re.split(r"^\.S[HS] ", block, flags=re.M)[0].splitlines()
        lines = [macro(line) if line.startswith(".") else line for line in lines]
        tag = plain(lines[0])
        out[re.split(r"[ ,]", tag)[0]] = (tag, plain(" ".join(lines[1:])))
    return out


def must_have(where, text, *wanted):
    for want in wanted:
        if want and not re.search(rf"(?<!\w){re.escape(plain(want))}(?!\w)", text):
            say(where, f"'{plain(want)}' is not there")


def values(option):
    """Range or words, and the default, as a page says them."""
    out = []
    if option["words"]:
        names = list(option["words"])
        out.append(", ".join(names[:-1]) + " or " + names[-1])
    elif option["least"] is not None and option["most"] not in (None, 2**32 - 1, 0):
        if option["most"] < 2**40:  # more is no limit that anybody meets
            out.append(f"{option['least']} to {option['most']}")
    out.append(standard(option))
    return out


def standard(option):
    return "needed" if option["needed"] else f"default: {option['default']}" if option["default"] else ""


def check_options_page(root, table):
    page = "docs/man/hearth_opts.3"
    there = entries(read(root, page))
    for option in table["options"]:
        if option["name"] == "reserved":
            continue
        tag, body = there.pop(option["name"], (None, None))
        where = f"{page}: {option['name']}"
        if tag is None:
            say(page, f"there is no option {option['name']}")
            continue
        must_have(where, tag, option["variable"], *values(option))
        must_have(where, body, option["help"],
                  option["ranks_agree"] and "The same on all ranks.",
                  option["engine_agrees"] and "A running engine must have it.")
    for variable in table["variables"]:
        if variable["reader"] != "tests":
            tag, body = there.pop(variable["name"], ("", ""))
            must_have(f"{page}: {variable['name']}", tag + " " + body, variable["name"],
                      variable["reader"], variable["help"])
    for name in there:
        say(page, f"{name} is no option")


def check_daemon_page(root, table):
    page = "docs/man/hearthd.8"
    there = {name: entry for name, entry in entries(read(root, page)).items() if name[:2] == "--"}
    for option in table["options"] + table["flags"]:
        if not option["flag"]:
            continue
        tag, body = there.pop(option["flag"], (None, None))
        if tag is None:
            say(page, f"there is no flag {option['flag']}")
            continue
        wanted = [option["help"], option["type"] != "switch" and standard(option)]
        must_have(f"{page}: {option['flag']}", tag, option["value"])
        must_have(f"{page}: {option['flag']}", body, *wanted, *(option["words"] or ()))
    for name in there:
        say(page, f"{name} is no flag")


def check_header(root, table):
    text = read(root, "include/hearth/opts.h")
    for option in table["options"]:
        found = re.search(rf"\b{option['name']};\s*/\*(.*?)\*/", text, re.S)
        says = found and re.search(r"\b0: (\d+)\b", found[1])
        if says and option["default"] != says[1]:
            say("include/hearth/opts.h", f"{option['name']}: the default is {option['default']}, "
                                         f"not {says[1]}")


def check_binding(root, path, table):
    tree = ast.parse(read(root, path))
    fields = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "Opts":
            fields = [(one.elts[0].value, one.elts[1].id) for one in node.body[-1].value.elts]
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("START", "NETWORK", "INTEGRITY"):
            name = node.targets[0].id.lower()
            words = next(o["words"] for o in table["options"] if o["name"] == name)
            if ast.literal_eval(node.value) != words:
                say(path, f"{name.upper()} is not {words}")
    want = [("struct_size", "SIZE")] + [(o["name"], CTYPES[o["type"]]) for o in table["options"]]
    for name, kind in want:
        if name not in dict(fields):
            say(path, f"Opts has no field {name}")
        elif dict(fields)[name] != kind:
            say(path, f"Opts.{name} is {dict(fields)[name]}, not {kind}")
    for name in dict(fields):
        if name not in dict(want):
            say(path, f"Opts.{name} is no field of struct hearth_opts")
    if sorted(fields) == sorted(want) and fields != want:
        say(path, "the fields of Opts are in another order than those of struct hearth_opts")


def check_dtypes(root, path):
    rows = re.findall(r'X\(HEARTH_\w+, (\d+), "(\w+)", \d+\)', read(root, "include/hearth/dtype.h"))
    for node in ast.walk(ast.parse(read(root, path))):
        if isinstance(node, ast.AnnAssign) and node.target.id == "DTYPES":
            has = ast.literal_eval(node.value)
            for name in sorted({name for name, _ in has.items() ^ {(n, int(v)) for v, n in rows}}):
                say(path, f"DTYPES has not of {name} what include/hearth/dtype.h has")
            return
    say(path, "there is no DTYPES")


def check_api(root, table):
    text = read(root, "docs/api.md")
    for option in table["options"]:
        if option["engine_agrees"] and not re.search(rf"\b{option['name']}\b", text):
            say("docs/api.md", f"{option['name']}, which a running engine must have, is not named")


def other_names(root):
    """Names that are none of variables: of the public headers, and switches of the build."""
    text = "".join(read(root, f"include/hearth/{name}")
                   for name in os.listdir(os.path.join(root, "include/hearth")))
    for path in ("CMakeLists.txt", "tests/CMakeLists.txt", "cmake/hearth.cmake"):
        if os.path.exists(os.path.join(root, path)):
            text += read(root, path)
    return set(re.findall(r"\bHEARTH_[A-Z0-9_]+", text))


def check_variables(root, table):
    known = {o["variable"] for o in table["options"]} | {v["name"] for v in table["variables"]}
    others = other_names(root) - known
    for folder, dirs, names in os.walk(root):
        dirs[:] = sorted(set(dirs) - SKIP_DIRS)
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if path in SKIP_FILES or name.endswith(".cmake") or name == "CMakeLists.txt":
                continue
            try:
                text = read(root, path)
            except (UnicodeDecodeError, FileNotFoundError):  # no text; a link to nothing
                continue
            found = READS.findall(text)
            if name.endswith((".md", ".sh", ".py")) or text.startswith("#!"):
                found += [a or b for a, b in SHELL.findall(text)]
            if name.endswith(".md"):
                found += QUOTED.findall(text)
            for variable in sorted(set(found) - known - others):
                say(path, f"nobody knows the variable {variable}")


def main():
    root, build = sys.argv[1:]
    out = subprocess.run([os.path.join(build, "bin/hearth"), "ls", "--env", "--json"], check=True,
                         capture_output=True, text=True).stdout
    table = json.loads(out)
    check_binding(root, BINDING, table)
    check_dtypes(root, BINDING)
    check_options_page(root, table)
    check_daemon_page(root, table)
    check_header(root, table)
    check_api(root, table)
    check_variables(root, table)
    print("\n".join(bad), end="\n" if bad else "")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
