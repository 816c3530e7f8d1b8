# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a job meet in torchrun's store, before there is a process group.

The store outlives the ranks, so it also has rows of dead processes. No number of the launcher's
tells these from the rows of living ones, because each agent counts only the restarts that it made
itself. So each opening of a job takes a number of the store's own, which is greater than all before
it.

    rank 0    begins a meeting: `lead` names it
    others    put their rows there
    rank 0    puts the table of all rows there
    others    say yes, each to a table with the row that it has put there itself; a rank that is
              not in it wants another meeting, for in its place stands one that is gone
    rank 0    has every yes: ends the meeting in `lead`, if that still names it, and then says go
    others    take the table

So no rank takes a table with the row of a dead process, since that process gives no yes. A rank
that waits in a meeting whose rank 0 is dead notices that `lead` changes, and leaves the meeting. If
a process that was given up is still alive, it yields to a later opening of its rank, and never the
other way round.

Calls are matched by their kind. The first call of a gather opens the job, and meets ranks that open
it too. A later call meets the processes of the first one, in whatever call of theirs they are. If
one of those ranks has opened the job anew, a later call fails at once on all ranks; the new process
waits until they have opened it anew as well.

Below hearth/<job>/ in the store:

    openings               how many there were
    opened/<rank>          the rank's last opening
    opened                 how many ranks have put theirs there
    lead                   _Lead, as JSON
    <meeting>/row/<rank>   opening and call that put it there, 8 bytes each, and the row
    <meeting>/table        such rows of all ranks, each behind its length in 4 bytes
    <meeting>/yes/<rank>   and again, go: that they are there says all

A meeting's keys stay until the next one is over: then all have left it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch.distributed as dist

from ..errors import HearthError, HearthTimeout

_PAUSE_S = 0.01  # between two looks, at most
_SWEEP_S = 5.0  # for keys of old meetings, at the end of one
_PAUSE_OF_RANK_S = 1e-4  # in large worlds: the store serves some ten thousand a second
_MOST_RANKS = 1 << 20  # of a world
_NAMED = 16  # of the ranks that are missing
_NOTHING = b"?"  # which no key of ours has for a value
_WHO = struct.Struct(">QQ")
_OPENED = struct.Struct(">Q")  # what _WHO begins with
_LENGTH = struct.Struct(">I")


class _Lead(NamedTuple):
    """The newest meeting.

    opening, draw  name it: whose it is, and which of them
    over           rank 0 waits in it no more
    left           (name, world) of earlier ones whose keys may still be there
    of             name of the meeting in which its ranks opened the job; "": they open it here
    anew           rank that has opened the job anew, so that this meeting has failed; 0: none
    """

    opening: int
    draw: int
    world: int
    over: bool
    left: list[tuple[str, int]]
    of: str = ""
    anew: int = 0

    @property
    def name(self) -> str:
        return f"{self.opening}.{self.draw}"

    def text(self) -> bytes:
        return json.dumps(self).encode()


def _lead_of(text: bytes | None) -> _Lead | None:
    """HearthError for what no rank of ours has written."""
    if text is None:
        return None
    try:
        lead = _Lead(*json.loads(text))
        names = [name for name, _ in lead.left]
        worlds = [lead.world, *(world for _, world in lead.left)]
        if (not all(type(n) is int and 0 <= n for n in (lead.opening, lead.draw))
                or type(lead.over) is not bool or type(lead.anew) is not int
                or not all(type(name) is str for name in [lead.of, *names])
                or not all(type(n) is int and 0 < n <= _MOST_RANKS for n in worlds)):
            raise ValueError("no meeting")
    except (ValueError, TypeError, RecursionError):
        raise _foreign("lead", text) from None
    return lead


def _foreign(key: str, there: bytes) -> HearthError:
    return HearthError(
        f"the store of torchrun's that the ranks meet in has {there[:40]!r} ({len(there)} bytes) "
        f"at the key {key} of Hearth's, which no rank has put there: another client of the store "
        "writes below hearth/<job>/. Restart the job, or give the job another name")


def _anew(rank: int) -> HearthError:
    return HearthError(f"rank {rank} has opened the job anew since this rank met it: the two meet "
                       "again when this one opens it anew as well, after leave()")


class StoreGather:
    """All-gather over a store, for one opening of a job."""

    def __init__(self, store: dist.Store, job: str, rank: int, world: int,
                 timeout_s: float) -> None:
        self._store = dist.PrefixStore(f"hearth/{job}", store)
        self._rank, self._world, self._timeout_s = rank, world, timeout_s
        self._opening = self._store.add("openings", 1)
        self._change(f"opened/{rank}", lambda there: max(there or b"", _OPENED.pack(self._opening)))
        self._store.add("opened", 1)  # after it, so that who sees this sees that
        self._calls, self._draws = itertools.count(1), itertools.count(1)
        self._led = 0  # opening of the rank 0 that we met: one before it is given up
        self._met = ""  # the meeting in which we opened the job
        self._opened: list[bytes] = []  # rank 0's alone: the openings of the other ranks there
        self._known: bytes | None = None  # the same: of `opened`, when all were these

    def __call__(self, mine: bytes) -> list[bytes]:
        row = _WHO.pack(self._opening, next(self._calls)) + mine
        wait = _Wait(self._timeout_s, self._world)
        rows = self._host(row, wait) if self._rank == 0 else self._come(row, wait)
        return [one[_WHO.size:] for one in rows]

    # ---- rank 0 ----------------------------------------------------------------------------------

    def _host(self, row: bytes, wait: _Wait) -> list[bytes]:
        lead = self._begin()
        try:
            while True:
                self._await(lead, wait, lambda: self._all(lead.name, "row"))
                rows = [row, *self._store.multi_get(self._keys(lead.name, "row"))]
                self._store.set(f"{lead.name}/table", _joined(rows))
                again = [f"{lead.name}/again"]
                self._await(lead, wait, lambda: self._store.check(again)
                            or self._all(lead.name, "yes"))
                if not self._store.check(again):
                    return self._go(lead, rows)
                lead = self._begin()
        except BaseException:
            with contextlib.suppress(Exception):  # that the store is gone was said
                self._swap(lead, lead._replace(over=True))
            raise

    def _begin(self) -> _Lead:
        """Another meeting. HearthError where a later rank 0 waits in one."""
        def next_of(text: bytes | None) -> bytes:
            old = _lead_of(text)
            if old is not None and not old.over and old.opening > self._opening:
                raise self._replaced()
            left = [] if old is None else [*old.left, (old.name, old.world)]
            return _Lead(self._opening, next(self._draws), self._world, False, left,
                         self._met).text()

        lead = _lead_of(self._change("lead", next_of))
        assert lead is not None
        return lead

    def _await(self, lead: _Lead, wait: _Wait, done: Callable[[], bool]) -> None:
        """Until it is done, as long as this meeting is the newest."""
        wait.begin()
        while not done():
            if self._peek("lead") != lead.text():
                raise self._replaced()
            if self._met:
                self._check_opened(lead)
            if not wait.nap():
                raise self._late(lead.name)

    def _check_opened(self, lead: _Lead) -> None:
        """HearthError, for all ranks, where one that opened the job with us has opened it anew."""
        known = self._peek("opened")
        if known == self._known:
            return
        ranks = range(1, self._world)
        now = self._store.multi_get([f"opened/{rank}" for rank in ranks])
        for rank, opened, last in zip(ranks, self._opened, now):
            if last > opened:
                self._swap(lead, lead._replace(over=True, anew=rank))
                raise _anew(rank)
        self._known = known

    def _go(self, lead: _Lead, rows: list[bytes]) -> list[bytes]:
        """The meeting is over, unless another was begun."""
        over = lead._replace(over=True)
        if not self._swap(lead, over):
            raise self._replaced()
        self._store.set(f"{lead.name}/go", b"")
        if not self._met:
            self._met, self._opened = lead.name, [row[:_OPENED.size] for row in rows[1:]]
        with contextlib.suppress(Exception):  # whoever leads next does it
            self._sweep(over)
        return rows

    def _sweep(self, over: _Lead) -> None:
        """Delete what is left of the meetings before this one, which all have left; as much as
        there is time for."""
        until = time.monotonic() + min(self._timeout_s, _SWEEP_S)
        for name, world in over.left:
            ranks = (f"{kind}/{rank}" for kind in ("row", "yes") for rank in range(1, world))
            for key in itertools.chain(ranks, ("table", "again", "go")):
                if time.monotonic() > until:
                    return
                self._store.delete_key(f"{name}/{key}")
        self._swap(over, over._replace(left=[]))

    # ---- the others ------------------------------------------------------------------------------

    def _come(self, row: bytes, wait: _Wait) -> list[bytes]:
        at: _Lead | None = None  # the meeting that we are in
        rows: list[bytes] | None = None  # its table, to which we said yes
        while True:
            lead = _lead_of(self._peek("lead"))  # before go: who begins another one said go before
            if at is not None and rows is not None and self._store.check([f"{at.name}/go"]):
                self._led, self._met = at.opening, self._met or at.name
                return rows
            if lead is not None and self._met:
                self._check_led(lead)
            if lead is not None and self._is_for_us(lead):
                if at is None or at.name != lead.name:
                    at, rows = lead, None
                    self._put_row(at.name, row)
                    wait.begin()
                if rows is None:
                    rows = self._agree(at.name, row)
            if not wait.nap():
                raise self._late(None if at is None else at.name)

    def _is_for_us(self, lead: _Lead) -> bool:
        """Not of another world, of a rank 0 that had a successor, or another call than this one."""
        return (not lead.over and lead.world == self._world and lead.opening >= self._led
                and lead.of == self._met)

    def _check_led(self, lead: _Lead) -> None:
        """HearthError where a rank that opened the job with us has opened it anew."""
        if lead.opening > self._led:
            raise _anew(0)
        if lead.opening == self._led and lead.anew:
            raise self._replaced() if lead.anew == self._rank else _anew(lead.anew)

    def _put_row(self, name: str, row: bytes) -> None:
        """In place of one that is gone. HearthError where a later process of this rank has come."""
        def mine(there: bytes | None) -> bytes:
            self._check_place(there or b"", row)
            return row

        self._change(f"{name}/row/{self._rank}", mine)

    def _agree(self, name: str, row: bytes) -> list[bytes] | None:
        """The table, if there is one with this row in it."""
        table = self._peek(f"{name}/table")
        if table is None:
            return None
        rows = _split(table, f"{name}/table", self._world)
        if rows[self._rank] == row:
            self._store.set(f"{name}/yes/{self._rank}", b"")
            return rows
        self._check_place(rows[self._rank], row)
        self._store.set(f"{name}/again", b"")
        return None

    def _check_place(self, there: bytes, row: bytes) -> None:
        if there[:_WHO.size] > row[:_WHO.size]:
            raise self._replaced()

    # ---- both ------------------------------------------------------------------------------------

    def _keys(self, name: str, kind: str) -> list[str]:
        return [f"{name}/{kind}/{rank}" for rank in range(1, self._world)]

    def _all(self, name: str, kind: str) -> bool:
        return self._store.check(self._keys(name, kind))

    def _peek(self, key: str) -> bytes | None:
        """What is there now: get() would wait for it."""
        value = self._store.compare_set(key, _NOTHING, _NOTHING)
        return None if value == _NOTHING else value

    def _change(self, key: str, change: Callable[[bytes | None], bytes]) -> bytes:
        """To what change() makes of what is there, with nothing that came between."""
        wait = _Wait(self._timeout_s, self._world)
        while True:
            old = self._peek(key)
            new = change(old)
            if (there := self._store.compare_set(key, old or b"", new)) == new:
                return new
            if not wait.nap():
                raise _foreign(key, there)

    def _swap(self, lead: _Lead, new: _Lead) -> bool:
        """Say another thing of the newest meeting, if it is this one."""
        return self._store.compare_set("lead", lead.text(), new.text()) == new.text()

    def _replaced(self) -> HearthError:
        return HearthError(f"another process has come as rank {self._rank} of {self._world} since "
                           "this one has: the ranks meet with that one")

    def _late(self, name: str | None) -> HearthTimeout:
        """Names who was being waited for in a meeting."""
        within = f"within {self._timeout_s:g} s"
        if name is None:
            return HearthTimeout(f"rank 0 of {self._world} has not come {within}")
        if ranks := self._absent(self._keys(name, "row")):
            return HearthTimeout(f"{_say(ranks, self._world)} not come {within}")
        ranks = self._absent(self._keys(name, "yes"))
        if ranks and str(self._rank) not in ranks:  # we were not asked
            return HearthTimeout(
                f"{_say(ranks, self._world)} come, and not answered {within}")
        return HearthTimeout(f"rank 0 of {self._world} has come, and not answered {within}")

    def _absent(self, keys: Sequence[str]) -> list[str]:
        """Ranks of keys that are not there: few looks where few are missing."""
        if not keys or self._store.check(list(keys)):
            return []
        if len(keys) == 1:
            return [keys[0].rpartition("/")[2]]
        half = len(keys) // 2
        return self._absent(keys[:half]) + self._absent(keys[half:])


def _joined(rows: list[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(row)) + row for row in rows)


def _split(table: bytes, key: str, world: int) -> list[bytes]:
    """HearthError for what no rank of ours has written."""
    rows, at = [], 0
    while at + _LENGTH.size <= len(table) and len(rows) < world:
        (length,), at = _LENGTH.unpack_from(table, at), at + _LENGTH.size
        rows.append(table[at:at + length])
        at += length
    if at != len(table) or len(rows) != world:
        raise _foreign(key, table)
    return rows


def _say(ranks: list[str], world: int) -> str:
    more = len(ranks) - _NAMED
    names = ", ".join(ranks[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"rank {names} of {world} has" if len(ranks) == 1 else f"ranks {names} of {world} have"


class _Wait:
    """Looks again and again until a deadline, at first often."""

    def __init__(self, timeout_s: float, world: int) -> None:
        self._until = time.monotonic() + timeout_s
        self._most_s = max(_PAUSE_S, world * _PAUSE_OF_RANK_S)
        self.begin()

    def begin(self) -> None:
        """For something else."""
        self._pause_s = 0.001

    def nap(self) -> bool:
        """False: the deadline is over."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(self._pause_s, left_s))
        self._pause_s = min(self._most_s, self._pause_s * 1.5)
        return True
