#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checklist number -> the tests that hold it, from the tests' names: test_CR7_... holds CR7.

Exit status 1 where a number has no test.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LISTS = {"CR": 18, "CP": 14, "DL": 18, "ML": 14}


def main() -> int:
    found: dict[str, list[str]] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M):
            for number in re.findall(r"(?<![A-Za-z])((?:CR|CP|DL|ML)\d+)(?![0-9])", name):
                found.setdefault(number, []).append(f"{path.name}::{name}")
    missing = 0
    for kind, count in LISTS.items():
        for number in (f"{kind}{i}" for i in range(1, count + 1)):
            tests = found.get(number)
            missing += not tests
            print(f"{number:5} {', '.join(tests) if tests else '-- no test --'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
