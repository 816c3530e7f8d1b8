# SPDX-License-Identifier: Apache-2.0
"""The programs of a wheel, which brings them in `_native/bin`: `hearth` and `hearthd`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

NATIVE = Path(__file__).resolve().parent / "_native"


def _become(name: str) -> NoReturn:
    program = NATIVE / "bin" / name
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {program}: {error.strerror}")


def hearth() -> NoReturn:
    _become("hearth")


def hearthd() -> NoReturn:
    _become("hearthd")
