# SPDX-License-Identifier: Apache-2.0
"""How long a dict or a set of Python's looks for places for its keys.

The hash of a number is the number, so whoever writes a pickle can choose numbers of which each is
compared with the places of all before it: 170,000 such keys took 77 s. The search of large
ones is followed here, some thousand keys at a time, and ends with an error where it takes far more
looks than the keys of any program do. A key that was not followed yet takes at most as many looks
as there are keys. So the time is linear in their number.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch

FEW = 1 << 14  # keys, which are not followed: all of them take a quarter of a second at most
_WINDOW = 4096  # keys that are followed together
_LOOKS = 128  # at places, a key on average: multiples of 2^13 and of 2^32 take up to forty
_LOOKS_OF_SET = 640  # up to two hundred
_ROUND = 400  # looks that a round of any number of keys costs as much as
_WORD = (1 << 64) - 1
_AFTER_SHIFT = (1 << 59) - 1


def _tensor(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device="cpu")


class Places:
    """Of one dict or set: Python's open addressing, five bits of the hash more with each look. Of a
    set, nine places after each are looked at as well."""

    def __init__(self, is_set: bool) -> None:
        self._beside, self._most = (9, _LOOKS_OF_SET) if is_set else (0, _LOOKS)
        self._size, self._used, self._looks, self._count = 8, 0, 0, 0
        self._hashes = _tensor([])
        self._table = self._empty()
        self._known: set[str] = set()  # as text, whose own hash nobody can choose
        self._pending: list[int] = []

    def add(self, keys: Iterable[Any]) -> None:
        """ValueError for keys that take too long."""
        them = iter(keys)
        while True:
            taken = list(islice(them, _WINDOW))
            if not taken:
                return
            self._count += len(taken)
            for key in taken:
                value = hash(key)
                text = str(value)
                if text not in self._known:
                    self._known.add(text)
                    self._pending.append(value)
            if self._count >= FEW and len(self._pending) >= _WINDOW:
                self._follow()

    def _follow(self) -> None:
        pending, self._pending = _tensor(self._pending), []
        while len(pending):
            room = 2 * self._size // 3 - self._used
            if room <= 0:
                self._size *= 2
                self._table = self._empty()
                self._place(self._hashes)
                continue
            now, pending = pending[:room], pending[room:]
            self._hashes = torch.cat((self._hashes, now))
            self._used += len(now)
            self._place(now)

    def _empty(self) -> torch.Tensor:
        return torch.zeros(self._size, dtype=torch.bool, device="cpu")

    def _place(self, hashes: torch.Tensor) -> None:
        """All of them at once: of those that come to one free place one has it."""
        mask, beside = self._size - 1, torch.zeros_like(hashes)
        more, at = hashes, hashes & mask
        winner = torch.empty(self._size, dtype=torch.int64, device="cpu")
        while len(at):
            self._looks += max(len(at), _ROUND)
            if self._looks > self._most * (self._count + FEW):
                raise ValueError(f"its keys take more than {self._most} looks each in a dict or "
                                 "set of Python's: they were chosen so, and would take very long")
            place = at + beside
            ours = torch.arange(len(at), dtype=torch.int64, device="cpu")
            winner[place] = ours
            stays = self._table[place] | (winner[place] != ours)
            self._table[place] = True
            at, more, beside = at[stays], more[stays], beside[stays] + 1
            over = (beside > self._beside) | (at + self._beside > mask)
            shifted = (more >> 5) & _AFTER_SHIFT
            at = torch.where(over, (5 * at + shifted + 1) & mask, at)
            more = torch.where(over, shifted, more)
            beside = torch.where(over, 0, beside)
