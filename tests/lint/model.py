#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""model.py ROOT: the messages of the code and those of the models in docs/model are the same.

The table "Messages" of docs/model/README.md has a row for each HTH_KIND_... and HTH_MSG_... that the code
defines; its second column says

  `a.pml` `b.pml`             these models have it: a comment there names it, and no other model does
  outside                     no model has it; the third column says why
  `a.pml`, not in the code    that model is ahead of the code

A message without a row, a row without its message and a model that names what its row does not say are errors."""
import glob
import os
import re
import sys

sys.dont_write_bytecode = True
from calls import OURS  # noqa: E402

PAGE = "docs/model/README.md"
NAME = r"HTH_(?:KIND|MSG)_[A-Z0-9_]+"


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def of_code(root):
    """Names that an enum of a header defines."""
    found = set()
    for folder in OURS:
        for path in glob.glob(os.path.join(root, folder, "**", "*.h"), recursive=True):
            found |= set(re.findall(rf"^\s*({NAME}) =", read(path), re.M))
    return found


def of_models(root):
    """{name: models that name it}"""
    found = {}
    for path in sorted(glob.glob(os.path.join(root, "docs/model/*.pml"))):
        for name in re.findall(rf"\b{NAME}\b", read(path)):
            found.setdefault(name, set()).add(os.path.basename(path))
    return found


def check(code, models, rows):
    bad = []
    seen = set()
    for name, where, why in rows:
        ahead = where.endswith("not in the code")
        says = set(re.findall(r"`([a-z]+\.pml)`", where))
        has = models.get(name, set())
        if name in seen:
            bad.append(f"{name} has two rows")
        seen.add(name)
        if not says and where != "outside":
            bad.append(f"{name}: '{where}' is neither a model nor outside")
        if len(why.split()) < 3:
            bad.append(f"{name}: its row does not say where, or why it is outside")
        if ahead and name in code:
            bad.append(f"{name} is in the code; its row says that it is not")
        if not ahead and name not in code:
            bad.append(f"{name} is not in the code")
        for model in sorted(says - has):
            bad.append(f"{name} is not named by {model}")
        for model in sorted(has - says):
            bad.append(f"{name} is named by {model}; its row does not say so")
    for name in sorted(code - seen):
        bad.append(f"{name} of the code has no row")
    for name in sorted(set(models) - seen):
        bad.append(f"{name} of {' '.join(sorted(models[name]))} has no row")
    return bad


def main(root):
    code, models = of_code(root), of_models(root)
    rows = [[part.strip() for part in row] for row in
            re.findall(rf"^\| `({NAME})` \|([^|]*)\|([^|]*)\|$", read(os.path.join(root, PAGE)), re.M)]
    bad = check(code, models, rows)
    if len(code) < 20 or len(models) < 5:
        bad.append(f"only {len(code)} messages in the code and {len(models)} in the models: this cannot be all")
    print("\n".join(f"{PAGE}: {one}" for one in bad) or
          f"{len(code)} messages, {len(models)} of them or to come in a model")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
