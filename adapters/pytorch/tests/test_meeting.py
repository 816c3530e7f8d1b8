# SPDX-License-Identifier: Apache-2.0
"""How ranks meet in torchrun's store: the living with the living, whatever the dead left there."""

from __future__ import annotations

import json
import random
import resource
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch.distributed as dist

from hearth_checkpoint.errors import HearthError, HearthTimeout
from hearth_checkpoint.torch import _jobs
from hearth_checkpoint.torch._meeting import StoreGather


AT_ONCE_S = 8.0  # at the worst, on a machine that is busy with other tests; a call waits for 20


@pytest.fixture
def server() -> Iterator[dist.TCPStore]:
    """The agent's store, which outlives the ranks."""
    yield dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


class Dead(Exception):
    """What ends a rank of a test without a word."""


class Connection:
    """A rank's store, from which it is cut off after some calls. slow: naps before each."""

    def __init__(self, store: Any, calls: float, slow: random.Random | None = None) -> None:
        self.store, self.calls, self.slow = store, calls, slow

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if self.slow is not None:
                time.sleep(self.slow.random() * 0.003)
            self.calls -= 1
            if self.calls < 0:
                raise Dead
            return getattr(self.store, name)(*args)

        return call


def rank_of(server: dist.TCPStore, rank: int, world: int = 2, *, job: str = "job",
            timeout_s: float = 20, calls: float = float("inf"),
            slow: random.Random | None = None) -> StoreGather:
    gather = StoreGather(server, job, rank, world, timeout_s)
    gather._store = Connection(gather._store, calls, slow)
    return gather


class Call(threading.Thread):
    """A rank in a meeting. end(): what it got, or its error."""

    def __init__(self, gather: Callable[[bytes], list[bytes]], row: bytes) -> None:
        super().__init__(daemon=True)
        self.gather, self.row, self.said = gather, row, None
        self.start()

    def run(self) -> None:
        try:
            self.said = self.gather(self.row)
        except Exception as error:
            self.said = error

    def end(self) -> Any:
        self.join(30)
        assert not self.is_alive()
        return self.said


def meet(ranks: list[StoreGather], *rows: bytes) -> list[Any]:
    calls = [Call(gather, row) for gather, row in zip(ranks, rows)]
    return [call.end() for call in calls]


def lead_of(server: dist.TCPStore, job: str = "job") -> list[Any]:
    return json.loads(dist.PrefixStore(f"hearth/{job}", server).get("lead"))


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_restart_that_one_agent_counted_and_the_other_did_not(server, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(server.port))

    def start(rank: int, restarts: str) -> Any:
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
        return _jobs._store_gather("/mnt/root/job", rank, 2, 5.0)

    old = [start(0, "0"), start(1, "0")]
    assert meet(old, b"old0", b"old1") == [[b"old0", b"old1"]] * 2
    new = [start(0, "1"), start(1, "0")]
    assert meet(new, b"new0", b"new1") == [[b"new0", b"new1"]] * 2


def test_a_later_call_meets_no_opening_and_fails_at_once_on_all_ranks(server):
    """A rank of an open job is started again. Its opening waits for those of the others."""
    old = [rank_of(server, rank, 3) for rank in range(3)]
    rows = [b"0", b"1", b"2"]
    assert meet(old, *rows) == [rows] * 3
    for rank in (1, 0):  # then rank 0
        new = Call(rank_of(server, rank, 3), b"new")
        others = [n for n in range(3) if n != rank]
        before = time.monotonic()
        said = meet([old[n] for n in others], *(rows[n] for n in others))
        assert time.monotonic() - before < AT_ONCE_S and new.is_alive()
        assert all(f"rank {rank} has opened the job anew" in str(error) for error in said), said
        calls = {n: Call(rank_of(server, n, 3), rows[n]) for n in others} | {rank: new}
        table = [b"new" if n == rank else rows[n] for n in range(3)]
        assert [calls[n].end() for n in range(3)] == [table] * 3
        old = [calls[n].gather for n in range(3)]
        assert meet(old, *rows) == [rows] * 3


def test_the_same_ranks_meet_again_however_slow_one_is(server):
    ranks = [rank_of(server, 0, 3), rank_of(server, 1, 3),
             rank_of(server, 2, 3, slow=random.Random(1))]
    for n in range(5):
        rows = [b"%d of %d" % (rank, n) for rank in range(3)]
        assert meet(ranks, *rows) == [rows] * 3


def test_a_rank_that_comes_once_more_is_waited_for(server):
    """Ranks that are out of step: one has failed where the others have met."""
    zero, one = rank_of(server, 0), rank_of(server, 1)
    assert meet([zero, one], b"a", b"b") == [[b"a", b"b"]] * 2
    again = Call(one, b"b2")
    time.sleep(0.1)  # in which it takes nothing of the meeting before
    assert again.is_alive()
    assert zero(b"a2") == again.end() == [b"a2", b"b2"]


@pytest.mark.parametrize("calls", range(16))
def test_no_table_with_a_row_of_the_dead_is_taken(server, calls):
    """Rank 1 dies after some calls, and another comes in its place; ranks 0 and 2 stay."""
    zero, two = Call(rank_of(server, 0, 3), b"0"), Call(rank_of(server, 2, 3), b"2")
    until(lambda: server.check(["hearth/job/lead"]))
    dead = rank_of(server, 1, 3, calls=calls)
    with pytest.raises(Dead):
        while True:
            dead(b"dead")
    zero.join(0.3)
    met = not zero.is_alive()  # it had said yes before it died
    if met:
        assert zero.end() == two.end() == [b"0", b"dead", b"2"]
        zero, two = Call(zero.gather, b"0"), Call(two.gather, b"2")
    new = Call(rank_of(server, 1, 3), b"1")
    if met:
        said = [str(each.end()) for each in (zero, two)]
        assert all("rank 1 has opened the job anew" in text for text in said), said
        zero, two = Call(rank_of(server, 0, 3), b"0"), Call(rank_of(server, 2, 3), b"2")
    assert zero.end() == two.end() == new.end() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("calls", range(0, 16, 3))
def test_what_dead_ranks_left_is_not_taken(server, calls, late):
    for gather in (rank_of(server, 0, calls=calls), rank_of(server, 1, calls=calls)):
        Call(gather, b"dead")
    time.sleep(0.05)
    ranks = [rank_of(server, 0), rank_of(server, 1)]
    first = Call(ranks[1 - late], b"new%d" % (1 - late))
    time.sleep(0.05)
    second = Call(ranks[late], b"new%d" % late)
    assert first.end() == second.end() == [b"new0", b"new1"]


def test_a_rank_leaves_the_meeting_of_a_dead_rank_0(server):
    Call(rank_of(server, 0, 3, calls=9), b"dead").end()
    assert not lead_of(server)[3]  # nobody has ended it
    one, two = Call(rank_of(server, 1, 3), b"1"), Call(rank_of(server, 2, 3), b"2")
    time.sleep(0.1)
    assert one.is_alive() and two.is_alive()
    zero = Call(rank_of(server, 0, 3), b"0")
    assert zero.end() == one.end() == two.end() == [b"0", b"1", b"2"]


def test_a_rank_0_that_has_a_successor_gives_way(server):
    old, new = rank_of(server, 0), rank_of(server, 0)
    first = Call(old, b"old")
    until(lambda: server.check(["hearth/job/lead"]))
    second = Call(new, b"new")
    assert "another process has come as rank 0" in str(first.end())
    with pytest.raises(HearthError, match="another process has come as rank 0"):
        old(b"old")  # nor does it begin one, while that one waits
    one = rank_of(server, 1)
    assert one(b"1") == second.end() == [b"new", b"1"]
    late = rank_of(server, 1, timeout_s=0.5)
    late._led = one._led
    alone = Call(old, b"old")  # now it does, and those who know the other do not come
    with pytest.raises(HearthTimeout):
        late(b"1")
    assert alone.is_alive()
    second = Call(new, b"new")
    with pytest.raises(HearthError, match="another process has come as rank 1"):
        one(b"1")
    assert "rank 1 has opened the job anew" in str(second.end())
    assert isinstance(alone.end(), HearthError)


def test_a_rank_that_has_a_successor_gives_way(server):
    old, new = rank_of(server, 1, 3, timeout_s=2), rank_of(server, 1, 3)
    zero = Call(rank_of(server, 0, 3), b"0")
    first = Call(old, b"old")
    until(lambda: any(server.check([f"hearth/job/{n}.1/row/1"]) for n in range(9)))
    second = Call(new, b"new")
    time.sleep(0.05)
    with pytest.raises(HearthError, match="another process has come as rank 1"):
        old(b"old")
    two = Call(rank_of(server, 2, 3), b"2")
    assert zero.end() == second.end() == two.end() == [b"0", b"new", b"2"]
    assert isinstance(first.end(), HearthError)  # by then the meeting may be over for it


def test_who_has_not_come_is_named_in_time(server):
    started = time.monotonic()
    calls = [Call(rank_of(server, rank, 5, timeout_s=0.5), b"") for rank in (0, 2)]
    for call in calls:
        said = call.end()
        assert isinstance(said, HearthTimeout)
        assert str(said) == "ranks 1, 3, 4 of 5 have not come within 0.5 s"
    assert str(Call(rank_of(server, 1, job="other", timeout_s=0.3), b"").end()) == (
        "rank 0 of 2 has not come within 0.3 s")
    assert time.monotonic() - started < 5


def test_a_rank_that_came_and_died_is_named_in_time(server):
    zero = Call(rank_of(server, 0, 3, timeout_s=1), b"0")
    two = Call(rank_of(server, 2, 3, timeout_s=1), b"2")
    until(lambda: server.check(["hearth/job/lead"]))
    gone = rank_of(server, 1, 3, calls=5)
    assert isinstance(Call(gone, b"dead").end(), Dead)
    assert str(zero.end()) == "rank 1 of 3 has come, and not answered within 1 s"
    assert str(two.end()) == "rank 1 of 3 has come, and not answered within 1 s"


@pytest.mark.parametrize("patient", [0, 1])
def test_a_rank_that_gave_up_comes_again(server, patient):
    ranks = [rank_of(server, 0), rank_of(server, 1)]
    hasty = rank_of(server, 1 - patient, timeout_s=0.2)
    with pytest.raises(HearthTimeout):
        hasty(b"too early")
    stays = Call(ranks[patient], b"%d" % patient)
    hasty._timeout_s = 20
    assert hasty(b"%d" % (1 - patient)) == stays.end() == [b"0", b"1"]


def test_jobs_of_a_process_meet_at_once(server):
    jobs = ["one", "two", "three"]
    calls = {job: [Call(rank_of(server, rank, job=job), b"%d %s" % (rank, job.encode()))
                   for rank in (0, 1)] for job in jobs}
    for job in jobs:
        rows = [b"0 " + job.encode(), b"1 " + job.encode()]
        assert [call.end() for call in calls[job]] == [rows] * 2


def test_a_meeting_of_another_world_is_none_of_ours(server):
    old = Call(rank_of(server, 0, 3, timeout_s=5), b"old")
    until(lambda: server.check(["hearth/job/lead"]))
    one = Call(rank_of(server, 1), b"1")
    time.sleep(0.05)
    assert rank_of(server, 0)(b"0") == one.end() == [b"0", b"1"]
    assert isinstance(old.end(), HearthError)


def test_rows_of_other_builds_come_as_they_are(server):
    ranks = [rank_of(server, 0), rank_of(server, 1)]
    assert meet(ranks, b"", b"longer\0") == [[b"", b"longer\0"]] * 2


def test_the_store_does_not_fill_up(server):
    counts = []
    for n in range(6):
        for row in (b"x", b"y"):
            ranks = [rank_of(server, rank, 3) for rank in range(3)]
            meet(ranks, row, row, row)
        Call(rank_of(server, 0, 3, calls=12), b"dead").end()
        counts.append(server.num_keys())
    assert len(set(counts)) == 1, counts


class Lives:
    """Ranks that are ended at some call and started again, and what each of their calls came to.

    opened  when each (rank, opening) was
    tables  what calls gave: kind of call, (rank, opening), table; a row of it is "rank opening
            kind life call"
    failed  of calls that others' new openings ended: rank, its table as it opened, when the call
            began, when it failed
    """

    WORLD, LIVES, LATER = 4, 3, 2

    def __init__(self, server: dist.TCPStore, seed: int) -> None:
        self.server, self.dice = server, random.Random(seed)
        self.opened: dict[tuple[int, int], float] = {}
        self.tables: list[tuple[str, tuple[int, int], list[bytes]]] = []
        self.failed: list[tuple[int, list[bytes], float, float]] = []
        self.errors: list[BaseException] = []

    def run(self) -> None:
        threads = [threading.Thread(
            target=self._rank, args=(rank, random.Random(self.dice.random())), daemon=True)
            for rank in range(self.WORLD)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), self.errors

    def _rank(self, rank: int, rolled: random.Random) -> None:
        for life in range(self.LIVES):
            last = life == self.LIVES - 1
            left = [float("inf") if last else rolled.randrange(45)]
            try:
                while not self._opens(rank, life, last, left, rolled):
                    pass
            except Dead:
                pass
            except Exception as error:
                self.errors.append(error)
                return
            time.sleep(rolled.random() * 0.02)

    def _opens(self, rank: int, life: int, last: bool, left: list[float],
               rolled: random.Random) -> bool:
        """Opens the job, and calls again. False: another rank has opened it anew."""
        gather = rank_of(self.server, rank, self.WORLD, calls=left[0], slow=rolled)
        me = rank, gather._opening
        self.opened[me] = time.monotonic()
        first: list[bytes] = []
        for n in range(1000):
            kind, began = "later" if n else "open", time.monotonic()
            row = b"%d %d %s %d %d" % (rank, gather._opening, kind.encode(), life, n)
            try:
                rows = gather(row)
            except HearthError as error:
                left[0] = gather._store.calls
                if "has opened the job anew" not in str(error):
                    raise
                self.failed.append((rank, first, began, time.monotonic()))
                return False
            assert rows[rank] == row
            self.tables.append((kind, me, rows))
            first = first or rows
            if last and n >= self.LATER and all(self.of(each)[3] == life for each in rows):
                return True
        raise AssertionError("the last lives do not meet")

    @staticmethod
    def of(row: bytes) -> tuple[int, int, str, int]:
        rank, opening, kind, life, _ = row.decode().split()
        return int(rank), int(opening), kind, int(life)


@pytest.mark.parametrize("seed", range(20))
def test_whenever_ranks_are_ended_calls_meet_calls_of_their_kind(server, seed):
    """Lives of four ranks, each ended at some call. A table is of one kind of call, and the same
    for all who took it; one of a later call is of the ranks that opened the job together; a later
    call that cannot be fails at once. The last lives open the job and call again, all together."""
    lives = Lives(server, seed)
    lives.run()
    assert not lives.errors
    of_row = {row: rows for _, _, rows in lives.tables for row in rows}
    together = {me: [lives.of(row)[:2] for row in rows]
                for kind, me, rows in lives.tables if kind == "open"}
    for kind, me, rows in lives.tables:
        assert all(lives.of(row)[2] == kind for row in rows), rows
        assert all(of_row[row] == rows for row in rows)
        if kind == "later":
            assert [lives.of(row)[:2] for row in rows] == together[me], (rows, together[me])
    for rank, first, began, ended in lives.failed:
        assert first, "the job's opening meets whoever opens it"
        met = {lives.of(row)[:2] for row in first}
        anew = [when for (other, opening), when in lives.opened.items()
                if any(other == them and opening > theirs for them, theirs in met)
                and other != rank]
        assert anew and ended - max(began, min(anew)) < AT_ONCE_S, (rank, first)


FOREIGN = {
    "text": b"written by another client, thirty", "json": b'{"a": [1, 2, 3, 4, 5, 6, 7, 8, 9]}',
    "numbers": b"[1, 2, 3]", "nothing": b"", "no such value": b"?",
    "a world of many": b"[1,1,99999999999999999,true,[]]  ",
    "worlds of many before": b'[1,1,2,true,[["a",9999999999999]]]', "deep": b"[" * 100000,
    "true for a number": b"[true,1,2,true,[]]"}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_another_client_writes_under_our_keys_is_an_error_in_time(server, what):
    """Rank 0 neither waits without end nor makes names of more keys than there are ranks."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + (1 << 30), limits[1]))
    try:
        server.set("hearth/job/lead", FOREIGN[what])
        before = time.monotonic()
        said = [call.end() for call in [Call(rank_of(server, r, timeout_s=2), b"x") for r in (0, 1)]]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert time.monotonic() - before < 20
    assert type(said[0]) is HearthError and "another client" in str(said[0]), said
    assert isinstance(said[1], HearthError), said


@pytest.mark.parametrize("table", [b"written by another client, thirty", b"\0\0\0\1x" * 3,
                                   b"\0\0\0\1x\0\0\0\x09x", b"\xff" * 33, b""])
def test_a_table_of_another_client_is_an_error(server, table):
    one = Call(rank_of(server, 1, timeout_s=10), b"1")
    server.set("hearth/job/lead", b'[5, 1, 2, false, []]')
    server.set("hearth/job/5.1/table", table)
    said = one.end()
    assert type(said) is HearthError and "5.1/table" in str(said)


def _address_space() -> int:
    with open("/proc/self/statm") as lines:
        return int(lines.read().split()[0]) * resource.getpagesize()
