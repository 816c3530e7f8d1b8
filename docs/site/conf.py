# SPDX-License-Identifier: Apache-2.0
"""The site of docs/build, for Sphinx, which reads the Markdown where it lies in the source tree: a
link works in the site and where the files are read. docs/README.md gives the order: each of its
sections is a section of the site, with the pages that it links to. A page of docs/ that no section
links to is in no list, and Sphinx reports it. The manual pages are a section of their own."""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import manual  # noqa: E402 beside this file

ROOT = os.path.dirname(os.path.dirname(HERE))
CONTENTS = "docs/README"


def text_of(file):
    with open(os.path.join(ROOT, file), encoding="utf-8") as f:
        return f.read()


def pages():
    """All pages that git has, or, of an archive of the tree, that lie there."""
    command = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0 and done.stdout:
        listed = done.stdout.splitlines()
        return [page for page in listed if os.path.exists(os.path.join(ROOT, page))]
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in ("build", ".git")]
        below = [os.path.join(folder, file) for file in files if file.endswith(".md")]
        found += [os.path.relpath(page, ROOT) for page in below]
    return found


project = "Hearth"
author = "the Hearth authors"
project_copyright = "the Hearth authors, Apache-2.0"
version = re.search(r'HEARTH_VERSION +"(.*)"', text_of("include/hearth/version.h")).group(1)
extensions = ["myst_parser"]
root_doc = "README"
MANUAL = manual.make(ROOT)
include_patterns = pages() + [f"{page}.md" for page in MANUAL]
myst_heading_anchors = 6
highlight_language = "none"
suppress_warnings = ["myst.header"]  # of a heading that skips a level
html_theme = "furo"
html_title = f"Hearth {version}"
html_static_path = ["wide.css"]
html_css_files = ["wide.css"]
html_copy_source = False
html_show_sphinx = False


def linked(text, page):
    """The pages that a text of a page links to, in its order."""
    for target in re.findall(r"\]\(([^)\s#:]+\.md)(?:#[^)]*)?\)", text):
        yield os.path.normpath(os.path.join(os.path.dirname(page), target))[:-3]


def toctree(caption, names):
    options = [f":caption: {caption}"] if caption else []
    lines = ["```{toctree}", ":hidden:", *options, "", *(f"/{name}" for name in names), "```"]
    return "\n\n" + "\n".join(lines) + "\n"


def sections():
    """(title, pages) of each section of docs/README.md, each page once; then all other pages."""
    text = text_of(CONTENTS + ".md")
    taken = {root_doc, CONTENTS}
    for part in re.split(r"^## ", text, flags=re.M)[2:]:  # without the table of questions
        names = [name for name in dict.fromkeys(linked(part, CONTENTS)) if name not in taken]
        taken.update(names)
        yield part.split("\n", 1)[0].strip(), names
    yield "Manual pages", MANUAL
    rest = sorted(page[:-3] for page in include_patterns if page[:-3] not in taken | set(MANUAL))
    yield "Project", [name for name in rest if "/" not in name]
    yield "Source folders", [name for name in rest if "/" in name and not name.startswith("docs/")]


def add_contents(app, docname, source):
    """The lists of pages, which the Markdown itself does without."""
    del app
    source[0] = manual.relink(docname, source[0], MANUAL)
    if docname == root_doc:
        source[0] += toctree("", [CONTENTS])
        for title, names in sections():
            source[0] += toctree(title, names) if names else ""
    elif docname.startswith("docs/") and docname.endswith("/README") and docname != CONTENTS:
        here = os.path.dirname(docname)
        names = dict.fromkeys(linked(source[0], docname))
        below = [name for name in names if os.path.dirname(name) == here and name != docname]
        source[0] += toctree("", below)


def setup(app):
    app.connect("source-read", add_contents)
