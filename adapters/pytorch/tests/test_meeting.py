# SPDX-License-Identifier: Apache-2.0
"""How ranks meet in torchrun's store: the living with the living, whatever the dead left there."""

from __future__ import annotations

import random
import resource
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch.distributed as dist

from hearth.errors import HearthError, HearthTimeout
from hearth.torch import _jobs
from hearth.torch._meeting import StoreGather


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


def lead_of(server: dist.TCPStore, job: str = "job") -> str:
    return dist.PrefixStore(f"hearth/{job}", server).get("lead").decode()


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
    if not zero.is_alive():  # it had said yes before it died: those whom it met meet again
        assert zero.end() == two.end() == [b"0", b"dead", b"2"]
        zero, two = Call(zero.gather, b"0"), Call(two.gather, b"2")
    new = Call(rank_of(server, 1, 3), b"1")
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
    assert '"' not in lead_of(server) and "false" in lead_of(server)  # nobody has ended it
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
    assert one(b"1") == second.end() == [b"new", b"1"]
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


@pytest.mark.parametrize("seed", range(20))
def test_whenever_ranks_are_ended_the_last_of_each_meet(server, seed):
    """Lives of four ranks, each ended at some call; whoever is met was met by all who took its
    table, and the last lives meet each other."""
    dice, world, lives = random.Random(seed), 4, 3
    taken: list[list[bytes]] = []

    def live(rank: int, rolled: random.Random) -> None:
        for life in range(lives):
            last = life == lives - 1
            calls = float("inf") if last else rolled.randrange(30)
            try:
                gather = rank_of(server, rank, world, calls=calls, slow=rolled)
                for n in range(1000):
                    rows = gather(b"%d %d %02d" % (rank, life, n))
                    assert rows[rank] == b"%d %d %02d" % (rank, life, n)
                    taken.append(rows)
                    if last and all(row[2:3] == b"%d" % life for row in rows):
                        return
            except Dead:
                pass
            time.sleep(rolled.random() * 0.02)

    threads = [threading.Thread(target=live, args=(rank, random.Random(dice.random())),
                                daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(25)
        assert not thread.is_alive()
    tables = {(rank, row): rows for rows in taken for rank, row in enumerate(rows)}
    for rows in taken:  # a row is of one table
        assert all(tables[rank, row] == rows for rank, row in enumerate(rows))


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
