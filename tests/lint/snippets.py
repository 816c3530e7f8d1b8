#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""snippets.py ROOT --c-run PAGE...: the blocks `c run` of these pages, as functions of C.
snippets.py ROOT CC BIN: the code blocks of all pages do what they are there for.

  ```c           compiles without a warning, in a function beside what snippets.h declares; a block
                 that is a program by itself has a main(); tests/api/pages.c runs those that are
                 `c run`
  ```python      compiles; adapters/pytorch/tests/test_pages.py runs those that are `python run`
  ```sh run      runs in an empty folder, with the programs of BIN, and ends with 0. Where a line
                 ends in `# prints: TEXT`, that line's output is TEXT.
  ```sh packages tests/install/deb_root.sh runs it in a bare root, with the Debian packages

A block of sh, c or python with another mark is a fault: it would be run by nothing."""
import os
import re
import subprocess
import sys
import tempfile

MARKS = ("c", "c run", "python", "python run", "sh", "sh run", "sh packages")
FENCE = re.compile(r"^```(.*)$")


def blocks(text):
    """(number of the first line, info string, code) of each fenced block."""
    info, begin, lines = None, 0, []
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if not fence:
            lines.append(line)
        elif info is None:
            info, begin, lines = fence.group(1).strip(), number + 1, []
        else:
            yield begin, info, "\n".join(lines) + "\n"
            info = None


def c_unit(page, found):
    """One file of C for a page, whose lines are named as the page's."""
    here = os.path.dirname(os.path.abspath(__file__))
    unit = [f'#include "{here}/snippets.h"']
    for number, code in found:
        wrapped = "int main(" not in code
        if wrapped:
            unit.append(f"void block_{number}(void);\nvoid block_{number}(void)\n{{")
        unit.append(f'#line {number} "{page}"\n{code}')
        if wrapped:
            unit.append("}")
    return "\n".join(unit) + "\n"


def c_faults(root, compiler, page, found):
    flags = ["-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable",
             "-Wno-unused-but-set-variable", "-fsyntax-only", "-I", os.path.join(root, "include")]
    done = subprocess.run([compiler, *flags, "-x", "c", "-"], input=c_unit(page, found), text=True,
                          capture_output=True, check=False)
    if done.returncode != 0:
        yield done.stderr.strip()


def python_faults(page, number, code):
    try:
        compile("\n" * (number - 1) + code, page, "exec")
    except SyntaxError as e:
        yield f"{page}:{e.lineno}: {e.msg}"


def script(code):
    """The lines of a block, each after a mark, so that what a line prints can be told."""
    lines, marked = [], {}
    for at, line in enumerate(code.rstrip("\n").split("\n")):
        prints = re.search(r"^(\S.*?) +# prints: (.*)$", line)
        if prints:
            marked[at] = prints.group(2)
            lines += [f"echo; echo '<{at}'", line, f"echo; echo '{at}>'"]
        else:
            lines.append(line)
    return "\n".join(lines), marked


def sh_faults(page, number, code, programs):
    text, marked = script(code)
    environment = dict(os.environ, PATH=f"{programs}:{os.environ['PATH']}")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["bash", "-eu", "-o", "pipefail", "-c", text], cwd=folder, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=environment, timeout=60, check=False)
    if done.returncode != 0:
        yield f"{page}:{number}: exit status {done.returncode}: {done.stdout.strip()}"
        return
    for at, wanted in marked.items():
        printed = re.search(rf"^<{at}$(.*)^{at}>$", done.stdout, re.M | re.S)
        found = printed.group(1).strip() if printed else "nothing"
        if found != wanted:
            yield f"{page}:{number + at}: prints {found}, not {wanted}"


def faults_of(root, compiler, programs, page, text):
    in_c = []
    for number, info, code in blocks(text):
        if re.match(r"(c|python|sh)\b", info) and info not in MARKS:
            yield f"{page}:{number - 1}: '{info}' is no mark of a block: {', '.join(MARKS)}"
        if info.split(" ")[0] == "c":
            in_c.append((number, code))
        elif info.split(" ")[0] == "python":
            yield from python_faults(page, number, code)
        elif info == "sh run":
            yield from sh_faults(page, number, code, programs)
    if in_c:
        yield from c_faults(root, compiler, page, in_c)


def c_run(root, pages):
    """A function for each block: void start_c_1(void) for the first of docs/start/c.md."""
    for page in pages:
        with open(os.path.join(root, page), encoding="utf-8") as f:
            found = [block for block in blocks(f.read()) if block[1] == "c run"]
        stem = "_".join(page[:-len(".md")].split("/")[1:])
        for count, (number, _, code) in enumerate(found, 1):
            code = code.replace('"/mnt/hearth"', "root")
            print(f"static void {stem}_{count}(void)\n{{")
            print(f'#line {number} "{page}"\n{code}}}\n')
    return 0


def main(root, compiler, programs):
    listed = subprocess.run(["git", "-C", root, "ls-files", "*.md"], check=True, text=True,
                            capture_output=True).stdout.splitlines()
    bad, count = [], 0
    for page in listed:
        with open(os.path.join(root, page), encoding="utf-8") as f:
            text = f.read()
        bad += faults_of(root, compiler, programs, page, text)
        count += sum(1 for _, info, _ in blocks(text)
                     if info == "sh run" or info.split(" ")[0] in ("c", "python"))
    print("\n".join(bad) if bad else f"{count} blocks")
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[2] == "--c-run":
        sys.exit(c_run(sys.argv[1], sys.argv[3:]))
    sys.exit(main(*sys.argv[1:]))
