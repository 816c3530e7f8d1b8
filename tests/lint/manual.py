#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manual.py ROOT BUILD [PAGE...]: the manual pages of docs/man are right. Where PAGEs are named,
groff and the compiler are asked about those alone.

  every page   groff prints it without a warning; its title, section and version are right; its
               sections stand in the usual order; pages that it refers to exist; lines have at
               most 100 columns; the words are those that pages.py demands
  section 1    each command has a page, whose name, synopsis and options are those that
               `BUILD/bin/hearth COMMAND --help` prints; hearth.1 names each command so
  section 3    each function of include/hearth is in NAME and SYNOPSIS of one page, with the
               header's prototype; each struct and enum is laid out in one page as the header has
               it, comments aside; each other name of a header is in a page, and no page has a
               name that no header and no option has. BLOCKING names the calls that wait by the
               table of docs/api.md, and has its numbers. The code of EXAMPLES compiles

Exit status 1 where anything is wrong, 77 where all else is right and there is no groff."""
import json
import os
import re
import shutil
import subprocess
import sys

from declared import Headers, functions_in, layouts_in
from options import macro, plain
from pages import COLUMNS, WORDS

ORDER = ["NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPTIONS", "OUTPUT", "RETURN VALUE",
         "ERRORS", "THREADS", "BLOCKING", "EXIT STATUS", "ENVIRONMENT", "SIGNALS", "FILES",
         "NOTES", "EXAMPLES", "SEE ALSO"]
ANY_ORDER = {"hearth_opts.3"}  # it has a section for each kind of option
FONTS = r"\.(?:B|I|BR|RB|BI|IB|IR|RI) "

bad = []


def say(where, what):
    bad.append(f"{where}: {what}")


class Page:
    def __init__(self, path):
        self.name = os.path.basename(path)
        self.path = path
        with open(path, encoding="utf-8") as f:
            self.lines = f.read().splitlines()
        self.title = next((line for line in self.lines if line.startswith(".TH ")), "")
        self.sections = {}
        for line in self.lines:
            if line.startswith(".SH "):
                heading = line[4:].strip('"')
                self.sections[heading] = []
            elif self.sections:
                self.sections[heading].append(line)

    def text(self, section):
        """What a reader sees, in one line."""
        return plain(" ".join(words(line) for line in self.sections.get(section, ())))

    def entries(self, section):
        """[(tag, text)] of the paragraphs that begin with .TP"""
        out, tag = [], None
        for line in self.sections.get(section, ()):
            if line.startswith(".TP"):
                tag = True
            elif tag is True:
                tag = plain(words(line))
                out.append([tag, ""])
            elif line.startswith((".PP", ".SS")):
                tag = None
            elif tag:
                out[-1][1] = plain(out[-1][1] + " " + words(line))
        return [tuple(entry) for entry in out]

    def names(self):
        return [name.strip() for name in self.text("NAME").split(" - ")[0].split(",")]

    def prototypes(self):
        """{name: prototype} of SYNOPSIS"""
        text = re.sub(r"(?m)^#.*$", "", "\n".join(code(self.sections.get("SYNOPSIS", ()))))
        return functions_in(text)

    def layouts(self):
        """{"struct name": its text} of all code but examples"""
        return layouts_in("\n".join(text for name, lines in self.sections.items()
                                    if name != "EXAMPLES" for text in code(lines)))

    def paragraphs(self):
        """Of prose: neither code nor tags. (number, text)"""
        number, text, code = 0, [], False
        for at, line in enumerate(self.lines + [".PP"], 1):
            code = code or line in (".EX", ".nf")
            ends = code or line.startswith((".PP", ".TP", ".SH", ".SS", ".br", ".IP"))
            if ends and text:
                yield number, plain(" ".join(text))
                text = []
            code = code and line not in (".EE", ".fi")
            if not ends and not line.startswith('.\\"'):
                number = number if text else at
                text.append(words(line))


def words(line):
    if re.match(FONTS, line):
        return macro(line).strip()
    return "" if line.startswith(".") else line


def unroff(line):
    """A line of code as the terminal has it."""
    line = re.sub(r"\\f[BIRP]|\\&", "", line)
    return line.replace("\\-", "-").replace("\\e", "\\")


def printed(line):
    return unroff(macro(line) if re.match(FONTS, line) else line)


def references(page):
    """Each name(section) of ours."""
    for line in page.lines:
        yield from re.findall(r"\b(hearth[\w-]*)\((\d)\)", printed(line))


def check_page(page, version, exist):
    name, section = page.name.rsplit(".", 1)
    if page.title.split()[1:3] != [name.upper(), section]:
        say(page.name, f"the title is not {name.upper()} {section}")
    if f'"Hearth {version}"' not in page.title:
        say(page.name, f"the title has not version {version}")
    places = [ORDER.index(one) if one in ORDER else -1 for one in page.sections]
    if page.name not in ANY_ORDER and (-1 in places or places != sorted(places)):
        say(page.name, f"its sections are not those of the others in their order: "
                       f"{', '.join(page.sections)}")
    if page.names()[0] != name:
        say(page.name, "NAME does not begin with the page's name")
    for other in sorted(set(references(page))):
        if other not in exist:
            say(page.name, f"there is no page {other[0]}({other[1]})")
    for number, line in enumerate(page.lines, 1):
        if len(line) > COLUMNS and not line.startswith(".B"):  # a tag is one line
            say(f"{page.name}:{number}", f"{len(line)} columns, {COLUMNS} are the most")
    for number, text in page.paragraphs():
        for pattern, remedy, _ in WORDS:
            found = re.search(pattern, text)
            if found:
                say(f"{page.name}:{number}", f"'{found.group(0).strip()[:60]}': {remedy}")


def check_groff(folder, names):
    out = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", *names], cwd=folder,
                         capture_output=True, text=True)
    for line in out.stderr.splitlines():
        say("groff", line)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_command(hearth, name, what, page, statuses):
    text = run(hearth, name, "--help")
    if page.text("NAME") != f"hearth-{name} - {what}":
        say(page.name, f"NAME is not 'hearth-{name} - {what}'")
    usage = re.search(r"^usage: (.*)$", text, re.M)[1].replace(f" | {name} ", f" hearth {name} ")
    if page.text("SYNOPSIS").replace(" ", "") != usage.replace(" ", ""):
        say(page.name, f"SYNOPSIS is not '{usage}'")
    there = {" ".join(tag.split()) for tag, _ in page.entries("OPTIONS")}
    printed = {one.strip() for one in re.findall(r"^(--[a-z-]+(?: \[?[A-Z]+\]?)?)  ", text, re.M)}
    for option in sorted(printed - there):
        say(page.name, f"OPTIONS has no {option}")
    for option in sorted(there - printed):
        say(page.name, f"hearth {name} has no {option}")
    for status, _ in page.entries("EXIT STATUS"):
        if status not in statuses:
            say(page.name, f"hearth.1 has no exit status {status}")
    for section in ("DESCRIPTION", "EXIT STATUS", "EXAMPLES", "SEE ALSO"):
        if section not in page.sections:
            say(page.name, f"there is no {section}")


def check_commands(hearth, pages):
    text = run(hearth, "--help")
    commands = re.findall(r"^  ([a-z-]+) +(.*)$", text, re.M)
    main = pages["hearth.1"]
    want = [(f"hearth-{name}(1)", what) for name, what in commands]
    if main.entries("COMMANDS") != want:
        for one in sorted(set(want) ^ set(main.entries("COMMANDS"))):
            say("hearth.1", f"COMMANDS is not what hearth --help prints: {': '.join(one)}")
    statuses = [status for status, _ in main.entries("EXIT STATUS")]
    for name, what in commands:
        page = pages.get(f"hearth-{name}.1")
        if page:
            check_command(hearth, name, what, page, statuses)
        else:
            say("docs/man", f"there is no page hearth-{name}.1")
    for name in pages:
        if name.endswith(".1") and name[7:-2] not in [""] + [command for command, _ in commands]:
            say(name, "hearth has no such command")


# ---- section 3 ---------------------------------------------------------------------------------

SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "RETURN VALUE", "ERRORS", "THREADS", "BLOCKING",
            "EXAMPLES", "SEE ALSO"]
BY_OPTIONS = {"struct hearth_opts"}  # options.py compares each of its fields


def code(lines):
    """[text] of the blocks of code"""
    blocks, inside = [], False
    for line in lines:
        if line in (".EX", ".nf"):
            inside = True
            blocks.append("")
        elif line in (".EE", ".fi"):
            inside = False
        elif inside and not line.startswith("."):
            blocks[-1] += unroff(line) + "\n"
    return blocks


def check_calls_page(page, headers, waits):
    prototypes = page.prototypes()
    for name, text in prototypes.items():
        if name not in headers.functions:
            say(page.name, f"no header has the call {name}()")
        elif headers.functions[name] != text:
            say(page.name, f"the header has '{headers.functions[name]}', not '{text}'")
        if name not in page.names():
            say(page.name, f"NAME has not {name}")
    for name in page.names()[1:]:
        if name not in prototypes:
            say(page.name, f"SYNOPSIS has not {name}()")
    for name, text in page.layouts().items():
        if headers.layouts.get(name) != text:
            say(page.name, f"the header has not this layout of {name}: {text}")
    for section in SECTIONS:
        if section not in page.sections:
            say(page.name, f"there is no {section}")
    named = set(re.findall(r"\b(hearth_\w+)\(\)", page.text("BLOCKING")))
    mine = set(prototypes)
    for name in sorted(mine & set(waits) - named):
        say(page.name, f"{name}() may wait, and BLOCKING does not name it")
    for name in sorted(mine & named - set(waits)):
        say(page.name, f"BLOCKING names {name}(), which waits for nothing by docs/api.md")
    limits = set(re.findall(r"\b\d+ m?s\b", page.text("BLOCKING").replace("seconds", "s")))
    wanted = set().union(*(waits[name] for name in mine & set(waits)))
    if mine & set(waits) and limits != wanted:
        say(page.name, f"BLOCKING has not the limits of docs/api.md: {', '.join(limits ^ wanted)}")
    for tag, _ in page.entries("ERRORS"):
        for name in re.findall(r"HEARTH_\w+", tag):
            if name not in headers.codes:
                say(page.name, f"ERRORS: {name} is no code")


def check_example(page, include):
    text = "".join(code(page.sections.get("EXAMPLES", ())))
    out = subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror",
                          "-fsyntax-only", "-I", include, "-x", "c", "-"],
                         input=text, capture_output=True, text=True)
    if out.returncode or "(" not in text:
        say(page.name, f"EXAMPLES does not compile: {out.stderr or 'there is no code'}")


def check_calls(root, hearth, pages, asked):
    headers = Headers(os.path.join(root, "include/hearth"))
    with open(os.path.join(root, "docs/api.md"), encoding="utf-8") as f:
        table = re.search(r"^## What may wait\n(.*?)^## ", f.read(), re.M | re.S)[1]
    waits = {name: set(re.findall(r"\b\d+ m?s\b", limit))
             for row, limit in re.findall(r"^\| (`hearth_[^|]*)\|(.*)$", table, re.M)
             for name in re.findall(r"hearth_\w+", row)}
    functions, layouts, named = {}, {}, set()
    for page in pages:
        check_calls_page(page, headers, waits)
        if page.name in asked:
            check_example(page, os.path.join(root, "include"))
        for name in page.prototypes():
            functions.setdefault(name, []).append(page.name)
        for name in page.layouts():
            layouts.setdefault(name, []).append(page.name)
        named |= set(re.findall(r"\w+", unroff("\n".join(page.lines))))
    for kind, want, have in (("call", headers.functions, functions),
                             ("layout", set(headers.layouts) - BY_OPTIONS, layouts)):
        for name in sorted(want):
            if len(have.get(name, ())) != 1:
                say("docs/man", f"the {kind} {name} is in {len(have.get(name, ()))} pages of "
                                f"section 3: {' '.join(have.get(name, ()))}")
    for name in sorted(headers.names - named):
        say("docs/man", f"no page of section 3 names {name}")
    table = json.loads(run(hearth, "ls", "--env", "--json"))
    known = headers.names | {one["variable"] for one in table["options"]} | {
        one["name"] for one in table["variables"]}
    for page in pages:
        text = "\n".join(printed(line) for line in page.lines if line != page.title)
        for name in sorted(set(re.findall(r"\bHEARTH_\w*[A-Z0-9]\b|\bhearth_\w+(?=\()", text))
                           - known):
            say(page.name, f"no header and no option has {name}")


def main(root, build, *named):
    folder = os.path.join(root, "docs/man")
    pages = {name: Page(os.path.join(folder, name)) for name in sorted(os.listdir(folder))}
    asked = [name for name in pages if name in (named or pages)]
    with open(os.path.join(root, "include/hearth/version.h"), encoding="utf-8") as f:
        version = re.search(r'HEARTH_VERSION +"(.*)"', f.read())[1]
    exist = {(name, page.name[-1]) for page in pages.values() for name in page.names()}
    for page in pages.values():
        check_page(page, version, exist)
    if asked and shutil.which("groff"):
        check_groff(folder, asked)
    hearth = os.path.join(build, "bin/hearth")
    check_commands(hearth, pages)
    check_calls(root, hearth, [page for page in pages.values() if page.name.endswith(".3")],
                asked)
    for line in bad:
        print(line)
    if not bad and not shutil.which("groff"):
        print("there is no groff, which prints the pages: apt-get install groff-base")
        return 77
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
