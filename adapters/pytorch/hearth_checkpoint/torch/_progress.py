# SPDX-License-Identifier: Apache-2.0
"""One line of progress on a terminal, for loads that take longer than two seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType

_AFTER_S = 2.0
_EVERY_S = 0.5


class Progress:
    """Bytes done of a total. Quiet where standard error is no terminal.

    what   the line's first words
    total  bytes
    """

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._begin = self._shown = time.monotonic()
        self._on = sys.stderr is not None and sys.stderr.isatty()
        self._wrote = False

    def __enter__(self) -> Progress:
        return self

    def add(self, count: int) -> None:
        """So many bytes more."""
        self._done += count
        now = time.monotonic()
        if not self._on or now - self._begin < _AFTER_S or now - self._shown < _EVERY_S:
            return
        self._shown, self._wrote = now, True
        share = 100 * self._done // max(1, self._total)
        rate = self._done / (now - self._begin) / 1e9
        sys.stderr.write(f"\r{self._what} {share:3d}% {self._done / 1e9:.2f} GB, {rate:.2f} GB/s ")
        sys.stderr.flush()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._wrote:
            sys.stderr.write("\n")
