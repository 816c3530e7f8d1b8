#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pages.py ROOT: what every page (*.md) keeps to.

  columns  a line of text has at most 100 columns, of code and drawings 120; tables, headings, and
           blocks of sh that are typed as written, may have more
  lines    a page of docs/ has at most 250 lines, unless LONGER names it
  links    a link to a file of the tree leads to one, and its #anchor to a heading there
  orphans  README.md leads to every page of docs/, over however many links
  words    PLAIN pages have none of the constructions of WORDS"""
import os
import re
import subprocess
import sys

COLUMNS, CODE_COLUMNS, LINES = 100, 120, 250
LONGER = {"docs/api.md": "it names every call",  # page: why it may have more lines
          "docs/operate/runbook.md": "it is searched for one name"}
PLAIN = re.compile(
    r"(README|SECURITY|CHANGELOG)\.md$|"
    r"docs/((README|api)\.md|(start|use|operate|reference|design|model)/)|"
    r"((core|client|engine|loader|meeting|replication|transport|cli|daemon|deploy)/.*|"
    r"adapters/pytorch/)README\.md$")

THING = (r"\b(?:option|setting|variable|flag|message|row|line|record|file|table|page|header|error|"
         r"sentence|log|number|field|command|name|key|test|list|answer|status)s?")
# A construction, what to write instead, and a sentence that has it, which pages_test.sh plants.
WORDS = [
    (r"(?:^|[.:;] )Who (?:(?!\?).)*?[.;:](?: |$)",
     "name the actor: a rank, a node, a peer, an operator",
     "Who asks for a 65th has lost the connection."),
    (r"(?:^|[.:;] )What (?:nobody|is|has|was|a|the|one)\b[^?|]*?[.;:](?: |$)",
     "begin with the noun, not with 'What …'",
     "What nobody has asked for is taken from an ancestor in the tree alone."),
    (r"\b[Nn]obody\b|\b[Ss]omebody\b", "name the actor: no rank, another program, an operator",
     "The slot is free when nobody maps it."),
    (r": who \w+|, who \w+s [^.?]*? (?:has|is|gets|finds)\b",
     "name the actor: 'If the job dies, …'",
     "A part is missing: who dies between the two finds the step before."),
    (r"\bone with (?:fewer|more)\b|\bso is one that\b",
     "say 'a save with …', the noun and not 'one'",
     "With `allow_degraded` one with fewer copies counts; so is one that lost copies later."),
    (r"'s that [a-z]+s it\b", "put the actor first: 'the most recently opened job's value applies'",
     "`linger_s` is the last job's that sets it."),
    (THING + r"(?:'s)? (?:says?|wants?|knows?|hears?|tells?|believes?|wishes|complains?|sees)\b",
     "things send, require, have, name, report, print",
     "The option says how long an engine waits."),
    (r"\b(?:is|are|was|were) (?:said|told)\b", "say who reports it: 'the log has', 'the rank logs'",
     "A lost copy is said once a minute."),
    (r"\b(?:hears?|heard)\b", "a node receives, notices, learns; or is silent",
     "The other nodes hear of it a moment later."),
    (r"\bis no (?:save|step|reason|checkpoint|success|error)\b", "write 'is not a …'",
     "A step of which a part is missing is no save."),
    (r"\b(?:gives? way|go(?:es)? home|at fault|left no word|gone with)\b",
     "the plain verb: moves, returns, ends, is freed",
     "Copies that moved go home when the node is well."),
    (r"(?<!who )\bwants to\b|\bwould like\b|\bis happy\b", "a program does, requires or refuses",
     "The engine wants to lock its slots."),
    (r"(?:^|[.:;] )(?:Whoever|Everybody|Everyone|Anybody|Someone|Anyone)\b",
     "name the actor: a rank, a node, a peer, an operator",
     "Everybody else waits for the table."),
    (r"\bno(?:t)? further word\b|\bwithout (?:a|further) word\b|\bmakes way\b",
     "the plain verb: is closed, is refused, is freed",
     "The least recently used connection makes way."),
]
LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s#]*)(#[^)\s]*)?\)")


def tracked(root, pattern):
    command = ["git", "-C", root, "ls-files", pattern]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def kinds(text):
    """(number, line, kind) of each line: text, heading, table, code, typed (a block of sh)."""
    fence, before = None, ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fence = None if fence is not None else line[3:]
            kind = "code"
        elif fence is not None:
            kind = "typed" if fence == "sh" else "code"
        elif line.startswith("|"):
            kind = "table"
        elif line.startswith("#"):
            kind = "heading"
        elif line.startswith("    ") and (not before.strip() or before.startswith("    code")):
            kind = "code"
        else:
            kind = "text"
        yield number, line, kind
        indented = kind == "code" and fence is None and not line.startswith("```")
        before = "    code" if indented else line


def anchors(text):
    """Of each heading, as GitHub makes them."""
    found = set()
    for _, line, kind in kinds(text):
        heading = re.match(r"#{1,6} (.*)", line) if kind == "heading" else None
        if heading:
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).replace("`", "")
            slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
            at, count = slug, 0
            while at in found:
                count += 1
                at = f"{slug}-{count}"
            found.add(at)
    return found


def links(page, text):
    """(number, file, anchor) of each link to a file of the tree; file None: outside of it."""
    for number, line, kind in kinds(text):
        if kind in ("code", "typed"):
            continue
        for target, anchor in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", target):
                continue
            file = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
            yield number, file, anchor[1:]


def paragraphs(text):
    """(number of its first line, text) of each paragraph, item and table row, without its code."""
    begin, words = 0, []
    for number, line, kind in kinds(text + "\n"):
        starts = kind == "table" or re.match(r"\s*([-*]|\d+\.) |#", line)
        if words and (starts or kind in ("code", "typed") or not line.strip()):
            yield begin, " ".join(words)
            words = []
        if kind in ("code", "typed") or not line.strip():
            continue
        if not words:
            begin = number
        words.append(re.sub(r"`[^`]*`", "``", re.sub(r"^\s*([-*]|\d+\.) |^#+ ", "", line).strip()))
    if words:
        yield begin, " ".join(words)


def sentences(paragraph):
    """Of a table row its cells."""
    if not paragraph.startswith("|"):
        return [paragraph]
    return [cell.strip() for cell in paragraph.split("|")]


def form_of(page, text):
    for number, line, kind in kinds(text):
        most = CODE_COLUMNS if kind == "code" else COLUMNS
        if kind not in ("table", "heading", "typed") and len(line) > most:
            yield f"{page}:{number}: {len(line)} columns, {most} are the most"
    count = text.count("\n")
    if page.startswith("docs/") and page not in LONGER and count > LINES:
        yield f"{page}: {count} lines, {LINES} are the most: make two pages of it"


def words_of(page, text):
    for number, paragraph in paragraphs(text):
        for part in sentences(paragraph):
            for pattern, remedy, _ in WORDS:
                found = re.search(pattern, part)
                if found:
                    yield f"{page}:{number}: '{found.group(0).strip()[:60]}': {remedy}"


def links_of(page, text, read):
    for number, file, anchor in links(page, text):
        if file not in read:
            yield f"{page}:{number}: the link leads to {file}, which is not there"
        elif anchor and anchor not in anchors(read[file] or ""):
            yield f"{page}:{number}: {file} has no heading #{anchor}"


def orphans(pages):
    reached, left = set(), ["README.md"]
    while left:
        page = left.pop()
        if page not in reached and page in pages:
            reached.add(page)
            left += [file for _, file, _ in links(page, pages[page])]
    for page in sorted(set(pages) - reached):
        if page.startswith("docs/"):
            yield f"{page}: README.md leads to it by no link"


def main(root):
    files = tracked(root, "*")
    pages = {}
    for page in files:
        if page.endswith(".md"):
            with open(os.path.join(root, page), encoding="utf-8") as f:
                pages[page] = f.read()
    read = {file: pages.get(file) for file in files}
    read.update({os.path.dirname(file): None for file in files})
    for folder in list(read):
        while folder:
            folder = os.path.dirname(folder)
            read.setdefault(folder, None)
    bad = list(orphans(pages))
    for page, text in sorted(pages.items()):
        bad += form_of(page, text)
        bad += links_of(page, text, read)
        if PLAIN.match(page):
            bad += words_of(page, text)
    for line in bad:
        print(line)
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--words"]:  # for pages_test.sh
        for _, remedy, sentence in WORDS:
            print(remedy, sentence, sep="\t")
        sys.exit(0)
    sys.exit(main(sys.argv[1]))
