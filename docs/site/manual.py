# SPDX-License-Identifier: Apache-2.0
"""The manual pages of docs/man as pages of the site. mandoc makes the HTML; it is put into a page
of Markdown below build/, which the site reads like any other, so it is in the search and in the
lists. `hearth_wait(3)` in a page becomes a link to the page that documents the call."""
import os
import re
import shutil
import subprocess

FOLDER = "build/site-man"  # below the root of the source tree, as Sphinx demands; git ignores it
SOURCE = re.compile(r"\]\(((?:[^)\s#]*/)?man/([\w-]+\.[138]))\)")


def sources(root):
    """Of section 1, 8, 3, and in each the page first that lists the others."""
    folder = os.path.join(root, "docs", "man")
    found = os.listdir(folder) if os.path.isdir(folder) else []
    pages = [name for name in found if re.search(r"\.[138]$", name)]
    first = ("hearth.1", "hearthd.8", "hearth.3")
    return sorted(pages, key=lambda name: ("183".index(name[-1]), name not in first, name))


def documented(root, page):
    """The names that its section NAME has."""
    with open(os.path.join(root, "docs", "man", page), encoding="utf-8") as f:
        text = re.search(r'(?ms)^\.SH "?NAME"?\n(.*?)^\.SH', f.read()).group(1)
    names = re.sub(r"\\f.|(?m:^\.\w+ )|\\", "", text).split(" - ")[0].replace("\n", " ")
    return [name.strip() for name in names.split(",")]


def html(root, page, owner):
    """owner: {(name, section): page}"""
    command = ["mandoc", "-T", "html", "-O", "fragment", f"docs/man/{page}"]
    text = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    text = re.sub(r'(?s)<table class="(head|foot)">.*?</table>\n', "", text)
    text = re.sub(r"(?s)<pre>.*?</pre>", lambda m: m.group(0).replace("\n<br/>\n", "\n"), text)
    text = re.sub(r"<(/?)h2\b", r"<\1h3", text)
    text = re.sub(r"<(/?)h1\b", r"<\1h2", text)  # a page of the site has its own h1

    def link(found):
        to = owner.get((found.group(1), found.group(2)))
        return found.group(0) if to in (None, page) else f'<a href="{to}.html">{found.group(0)}</a>'

    return re.sub(r"<b>([\w-]+)</b>\(([138])\)", link, text)


def make(root):
    """The names of the documents that were made, in order."""
    folder = os.path.join(root, FOLDER)
    shutil.rmtree(folder, ignore_errors=True)
    pages = sources(root)
    owner = {(name, page[-1]): page for page in pages for name in documented(root, page)}
    os.makedirs(folder)
    for page in pages:
        title = f"{page[:-2]}({page[-1]})"
        with open(os.path.join(folder, page + ".md"), "w", encoding="utf-8") as f:
            f.write(f"# {title}\n\n``````{{raw}} html\n{html(root, page, owner)}``````\n")
    return [f"{FOLDER}/{page}" for page in pages]


def relink(docname, text, made):
    """A link of a page to docs/man/NAME.N leads to the page of the site."""
    def target(found):
        page = f"{FOLDER}/{found.group(2)}"
        if page not in made:
            return found.group(0)  # Sphinx reports it
        return f"]({os.path.relpath(page, os.path.dirname(docname))}.md)"

    return SOURCE.sub(target, text)
