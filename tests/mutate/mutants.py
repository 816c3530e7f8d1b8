# SPDX-License-Identifier: Apache-2.0
"""The mutants of a C file: what its tokens allow, no parser.

A mutant is an edit of some tokens of one function. Its id is made of file, function, the line's tokens,
the operator, and which of the same it is, so that an edit elsewhere does not rename it. Left alone:
comments, strings, preprocessor lines, declarations (but for what they are initialised with),
sizeof, functions of any number of arguments, and calls whose only effect is text, a stop point, or
memory given back (QUIET)."""
import collections
import hashlib
import re

Token = collections.namedtuple("Token", "kind text at line")
Mutant = collections.namedtuple("Mutant", "id file line function operator edits before after")

TOKEN = re.compile(r"""
    (?P<skip>\s+|/\*.*?\*/|//[^\n]*|^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
  | (?P<sign>->|\+\+|--|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\.\.\.|.)
""", re.X | re.S | re.M)

RELATION = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
# Text, stop points and memory given back: leaks are for the sanitizers. snprintf() only where it makes text for people.
QUIET = {"hth_say", "hth_point", "free", "close", "assert", "hth_while"}
KEYWORDS = {"if", "for", "while", "switch", "do", "else", "return", "goto", "case", "default", "break", "continue"}
TYPES = {"struct", "enum", "union", "static", "const", "unsigned", "int", "char", "void", "long", "short", "extern",
         "signed", "double", "float", "_Static_assert", "_Alignas", "_Atomic", "register", "volatile"}


def tokens(text):
    out, line, seen = [], 1, 0
    for m in TOKEN.finditer(text):
        line += text.count("\n", seen, m.start())
        seen = m.start()
        if m.lastgroup != "skip":
            out.append(Token(m.lastgroup, m.group(), m.start(), line))
    return out


def pairs(toks):
    """{index of a bracket: index of its partner}"""
    partner, stack = {}, []
    for i, t in enumerate(toks):
        if t.kind != "sign":
            continue
        if t.text in "([{":
            stack.append(i)
        elif t.text in ")]}" and stack:
            partner[i] = stack.pop()
            partner[partner[i]] = i
    return partner


def functions(toks, partner):
    """(name, first token of the body, last) of each."""
    i = 0
    while i < len(toks):
        if toks[i].text == "{":
            j = i - 1
            if toks[j].text == ")" and j in partner and toks[partner[j] - 1].kind == "word":
                yield toks[partner[j] - 1].text, i, partner.get(i, len(toks) - 1)
            i = partner.get(i, len(toks) - 1)
        i += 1


class Body:
    """One function's mutants, as (token, operator, edits); an edit is (start, end, new text)."""

    def __init__(self, text, toks, partner, first, last):
        self.text, self.toks, self.partner, self.first, self.last = text, toks, partner, first, last
        self.found, self.quiet = [], set()
        for i in range(first, last):
            if toks[i].text == "(" and self.is_quiet(i):
                self.quiet.update(range(i - 1, partner[i] + 1))

    def end(self, i):
        return self.toks[i].at + len(self.toks[i].text)

    def is_quiet(self, i):
        name = self.toks[i - 1].text
        if name in QUIET or name in ("hth_fail", "sizeof"):
            return True
        inside = self.toks[i:self.partner[i]]
        return name == "snprintf" and any(t.kind == "string" and " " in t.text for t in inside)

    def add(self, i, operator, *edits):
        self.found.append((i, operator, edits))

    def replace(self, i, operator, new):
        self.add(i, operator, (self.toks[i].at, self.end(i), new))

    def condition(self, i):
        """if (...) and (...) ? negated, unless one of its tokens changed says the same."""
        a, b = i + 1, self.partner[i + 1]
        depth, flat = 0, []
        for t in self.toks[a + 1:b]:
            depth += (t.text in "([{") - (t.text in ")]}") if t.kind == "sign" else 0
            if depth == 0:
                flat.append(t.text)
        logical = {"&&", "||", "?"} & set(flat)
        if not logical and ("==" in flat or "!=" in flat or flat[:1] == ["!"]):
            return
        inner = self.text[self.end(a):self.toks[b].at]
        self.add(i, "negate", (self.end(a), self.toks[b].at, f"!({inner})"))

    def operators(self, i):
        t, before, after = self.toks[i], self.toks[i - 1], self.toks[i + 1]
        operand = before.kind in ("word", "number") and before.text not in KEYWORDS or before.text in (")", "]")
        if t.text in RELATION and operand:
            self.replace(i, f"{t.text} to {RELATION[t.text]}", RELATION[t.text])
        elif t.text == "!":
            self.replace(i, "! dropped", "")
        elif t.text in "+-" and operand and re.fullmatch(r"1[uUlL]*", after.text):
            self.add(i, f"{t.text} 1 dropped", (t.at, self.end(i + 1), ""))

    def statement(self, i):
        """The statement that begins at i: left out, or its value changed."""
        toks, j = self.toks, i
        word = toks[i].text
        if word in ("break", "continue") and toks[i + 1].text == ";":
            self.replace(i, f"{word} left out", "")
        while j < self.last and toks[j].text not in (";", "{", "}"):
            j = self.partner[j] + 1 if toks[j].text in ("(", "[") else j + 1
        if toks[j].text != ";" and not self.has_initialiser(i, j):
            return
        while j < self.last and toks[j].text != ";": # an assignment of { ... }
            j = self.partner[j] + 1 if toks[j].text in "([{" else j + 1
        if word == "return" and j > i + 1:
            self.value(i, j)
        elif word not in KEYWORDS and not self.declares(i) and not self.silent(i, j):
            kind = "assignment" if any(t.text in ASSIGN or t.text in ("++", "--") for t in self.flat(i, j)) else "call"
            if kind == "assignment" or toks[j - 1].text == ")":
                self.add(i, f"{kind} left out", (toks[i].at, toks[j].at, ""))

    def has_initialiser(self, i, j):
        return self.toks[j].text == "{" and any(t.text == "=" for t in self.flat(i, j))

    def flat(self, i, j):
        while i < j:
            yield self.toks[i]
            i = self.partner[i] + 1 if self.toks[i].text in ("(", "[", "{") else i + 1

    def declares(self, i):
        a, b, c = (self.toks[i + k] for k in range(3))
        return a.text in TYPES or a.kind == "word" and (b.kind == "word" or b.text == "*" and c.kind == "word" or
                                                          b.text == "*" and c.text in ("*", "const"))

    def silent(self, i, j):
        if self.toks[i].text == "(" and self.toks[i + 1].text == "void" and not any(t.text == "(" for t in self.toks[i + 2:j]):
            return True # (void)unused;
        return i + 1 < j and i in self.quiet or self.toks[i].kind != "word" and self.toks[i].text not in ("(", "*", "++", "--")

    def value(self, i, j):
        value = self.text[self.end(i):self.toks[j].at].strip()
        new = {"0": "1", "HEARTH_OK": "HEARTH_EIO"}.get(value, "0")
        if value != "NULL":
            self.add(i, f"return {new}", (self.end(i), self.toks[j].at, " " + new))

    def look(self):
        toks, value = self.toks, False # value: behind the = of a declaration
        declared = False
        for i in range(self.first + 1, self.last):
            t, before = toks[i], toks[i - 1].text
            starts = before in (";", "{", "}", "else", "do") or before == ":" and self.is_label(i - 1)
            starts = starts or before == ")" and toks[self.partner[i - 1] - 1].text in ("if", "for", "while", "switch")
            if starts and not self.in_list(i) and t.text not in (";", "{", "}"):
                declared, value = t.text not in KEYWORDS and self.declares(i), False
                if t.kind in ("word", "sign"):
                    self.statement(i)
            value = value or t.text == "="
            if t.text == ";":
                declared = False
            if i in self.quiet or declared and not value:
                continue
            if t.text == "if" and toks[i + 1].text == "(":
                self.condition(i)
            elif t.kind == "sign":
                self.operators(i)
        return self.found

    def is_label(self, i):
        j = i - 1
        while toks_text(self.toks, j) not in (";", "{", "}", "case", "default", "?"):
            j -= 1
        return self.toks[j].text in ("case", "default")

    def in_list(self, i):
        """In the brackets of a call or of `for`, or in an initialiser's braces."""
        j = i - 1
        while j > self.first:
            if self.toks[j].text in ")]}" and self.toks[j].kind == "sign":
                j = self.partner[j]
            elif self.toks[j].text in ("(", "["):
                return True
            elif self.toks[j].text == "{":
                return self.toks[j - 1].text in ("=", ")", ",", "{", "(") and not self.is_block(j)
            j -= 1
        return False

    def is_block(self, j):
        if self.toks[j - 1].text != ")":
            return self.toks[j - 1].text == "{" and not self.in_list(j)
        return self.toks[self.partner[j - 1] - 1].text in ("if", "for", "while", "switch")


def toks_text(toks, i):
    return toks[i].text


def apply(text, edits):
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + "\n" * text.count("\n", start, end) + text[end:]
    return text


def line_of(text, line):
    return " ".join(text.splitlines()[line - 1].split())


def enumerate_mutants(name, text):
    toks = tokens(text)
    partner = pairs(toks)
    by_line = collections.defaultdict(list)
    for t in toks:
        by_line[t.line].append(t.text)
    out, count = [], collections.Counter()
    for function, first, last in functions(toks, partner):
        if toks[first - 2].text == "...": # chosen() could not hand the arguments on
            continue
        for i, operator, edits in Body(text, toks, partner, first, last).look():
            line = toks[i].line
            key = (name, function, " ".join(by_line[line]), operator)
            digest = hashlib.sha256("\0".join((*key, str(count[key]))).encode()).hexdigest()[:10]
            count[key] += 1
            wrong = apply(text, edits)
            out.append(Mutant(digest, name, line, function, operator, edits, line_of(text, line), line_of(wrong, line)))
    return out


# ---- All in one ----------------------------------------------------------------------------------------

# 1: this process is to make the mistake of this number.
SWITCH = """#include <stdlib.h>
static int mutant_is(int number)
{
    static int chosen = -1;

    if (chosen < 0)
        chosen = getenv("MUTANT") ? atoi(getenv("MUTANT")) : 0;
    return chosen == number;
}
"""


def mark(content):
    """The first line of what is made of this file."""
    return f"/* mutants of {hashlib.sha256(content).hexdigest()} */\n"


def number_of(mutant):
    """The same in every run, so that what is built stays."""
    return int(hashlib.sha256(mutant.id.encode()).hexdigest()[:7], 16) + 1


class Function:
    """A function's text, from its type to its last bracket."""

    def __init__(self, text, toks, partner, first, last):
        end = first - 1 # of its parameters
        self.name_at = partner[end] - 1
        begin = self.name_at
        while begin > 0 and toks[begin - 1].text not in (";", "}"):
            begin -= 1
        self.text, self.toks, self.partner, self.body = text, toks, partner, first
        self.begin, self.end = toks[begin].at, toks[last].at + 1
        self.is_void = [t.text for t in toks[begin:self.name_at] if t.text not in ("static", "inline")] == ["void"]
        self.arguments = self.names(partner[end] + 1, end)

    def names(self, i, end):
        """The words that its parameters are called by."""
        out, last = [], None
        while i < end:
            t = self.toks[i]
            if t.text == "(": # (*function)(...)
                last = self.toks[i + 2].text
                i = self.partner[self.partner[i] + 1]
            elif t.text == "[":
                i = self.partner[i]
            elif t.text == ",":
                out.append(last)
            elif t.kind == "word":
                last = t.text
            i += 1
        return out + [last] if last and last != "void" else out

    def head(self, name):
        at = self.toks[self.name_at]
        return self.text[self.begin:at.at] + name + self.text[at.at + len(at.text):self.toks[self.body].at]

    def wrong(self, number, edits):
        """With the mistake, under another name."""
        at = self.toks[self.name_at]
        name = (at.at, at.at + len(at.text), f"{at.text}__{number}")
        moved = [(a - self.begin, b - self.begin, new) for a, b, new in (*edits, name)]
        text = apply(self.text[self.begin:self.end], moved)
        return text if text.startswith("static") else "static " + text

    def chosen(self, number):
        call = f"{self.toks[self.name_at].text}__{number}({', '.join(self.arguments)});"
        return f" if (mutant_is({number})) {{ {call} return; }}" if self.is_void else f" if (mutant_is({number})) return {call}"


def together(text, found):
    """(text, [(number, first line, last line)]): a file that makes the mistake whose number its environment
    names. found: [(number, Mutant)]"""
    toks = tokens(text)
    partner = pairs(toks)
    out, lines, seen = [mark(text.encode()), SWITCH], [], 0
    for _, first, last in functions(toks, partner):
        f = Function(text, toks, partner, first, last)
        ours = [(n, [e for e in m.edits if f.begin <= e[0] < f.end]) for n, m in found]
        ours = [(n, edits) for n, edits in ours if edits]
        if not ours:
            continue
        body = toks[f.body].at + 1
        out += [text[seen:f.begin], f.head(toks[f.name_at].text) + ";\n"]
        for number, edits in ours:
            line = "".join(out).count("\n") + 1
            out.append(f.wrong(number, edits) + "\n")
            lines.append((number, line, "".join(out).count("\n")))
        out += [text[f.begin:body], "".join(f.chosen(n) for n, _ in ours)]
        seen = body
    return "".join(out) + text[seen:], lines


# ---- Written by hand ---------------------------------------------------------------------------------

def body_of(text, function):
    """[start, end) of a function with its head; None: there is none."""
    toks = tokens(text)
    partner = pairs(toks)
    for name, first, last in functions(toks, partner):
        if name == function:
            return toks[partner[first - 1] - 1].at, toks[last].at + 1
    return None


def pattern(lines):
    words = " ".join(lines).split()
    return re.compile(r"\s+".join(re.escape(w) for w in words))


def read_must(path, label):
    """[(id, why, [(file, function, old lines, new lines)])]; raises ValueError."""
    out = []
    with open(path, encoding="utf-8") as f:
        for number, raw in enumerate(f, 1):
            line = raw.rstrip("\n")
            head = re.fullmatch(r"\[([\w-]+)\] (.+)", line)
            if not line.strip() or line.startswith("#"):
                continue
            if head:
                out.append((f"{label}:{head[1]}", head[2], []))
            elif out and line[0] in "-+" and out[-1][2]:
                out[-1][2][-1][2 if line[0] == "-" else 3].append(line[1:])
            elif out and len(line.split()) == 2:
                out[-1][2].append((*line.split(), [], []))
            else:
                raise ValueError(f"{path}:{number}: what is this? {line}")
    return out


def place_must(entry, read):
    """The Mutant; raises ValueError where the text is not there any more, or twice."""
    name, why, hunks = entry
    edits = []
    for file, function, old, new in hunks:
        text = read(file)
        span = body_of(text, function) if text is not None else None
        if span is None:
            raise ValueError(f"{name}: there is no {function}() in {file} any more")
        found = list(pattern(old).finditer(text, *span)) if old else []
        if len(found) != 1:
            raise ValueError(f"{name}: its text is {len(found)} times in {function}() of {file}")
        edits.append((found[0].start(), found[0].end(), " ".join(" ".join(new).split())))
    if not hunks or len({h[0] for h in hunks}) != 1:
        raise ValueError(f"{name}: it has to change one file")
    text, start = read(hunks[0][0]), edits[0][0]
    line = text.count("\n", 0, start) + 1
    old, new = (" ".join(" ".join(part).split()) for part in hunks[0][2:])
    return Mutant(name, hunks[0][0], line, hunks[0][1], why, tuple(edits), old, new or "(left out)")
