# SPDX-License-Identifier: Apache-2.0
"""Threads, the collector, forks and Ctrl-C: nothing of the library is used after it was given back,
and no thread waits for a lock that is never released."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hearth_checkpoint import _ffi
from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.job import Handle, Job

DEADLINE_S = 60.0
_ENDS = {"hearth_close", "hearth_save_abort", "hearth_save_commit", "hearth_save_give",
         "hearth_handle_close", "hearth_checkpoint_close"}


class Spy:
    """The library, watched: what is given back while it is in use, or used afterwards."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._lock = threading.Lock()
        self._inside: list[tuple[str, int]] = []
        self.wrong: list[str] = []
        self.ended: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._real, name)

        def call(*args: Any) -> Any:
            pointer = getattr(args[0], "value", None) if args else None
            mine = (name, pointer or 0)
            with self._lock:
                if name in _ENDS:
                    self.ended.append(name)
                    self.wrong += [f"{name} while a thread is in {other}"
                                   for other, theirs in self._inside
                                   if pointer == theirs or name == "hearth_close"]
                self._inside.append(mine)
            try:
                return function(*args)
            finally:
                with self._lock:
                    self._inside.remove(mine)

        return call

    def is_idle(self) -> bool:
        with self._lock:
            return not self._inside


@pytest.fixture
def spy(base: str, monkeypatch: pytest.MonkeyPatch) -> Spy:
    watched = Spy(_ffi.library())
    monkeypatch.setattr(_ffi, "_library", watched)
    return watched


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread, and what it returned or raised."""
    out: list[Any] = []

    def run() -> None:
        try:
            out.append(work())
        except BaseException as error:
            out.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, out


def ended(thread: threading.Thread, out: list[Any]) -> Any:
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    return out[0]


@contextlib.contextmanager
def two_ranks(folder: str) -> Iterator[list[Job]]:
    """Ranks 0 and 1 of one job on two nodes, in this process."""
    meet, rows = threading.Barrier(2), [b"", b""]

    def join(rank: int) -> Job:
        def gather(mine: bytes) -> list[bytes]:
            rows[rank] = mine
            meet.wait(DEADLINE_S)
            both = list(rows)
            meet.wait(DEADLINE_S)
            return both

        os.makedirs(f"{folder}/node{rank}")
        job = Job.open(f"{folder}/node{rank}/job", rank=rank, world=2, gather=gather,
                       node=f"node{rank}")
        job.recover()
        return job

    threads = [in_thread(lambda rank=rank: join(rank)) for rank in range(2)]
    jobs = [ended(*thread) for thread in threads]
    for job in jobs:
        assert isinstance(job, Job), job
    yield jobs
    for job in jobs:
        job.close(keep=False)


def written(job: Job, step: int) -> Handle:
    save = job.begin(step, 1 << 16)
    save.add_bytes([(b"k", b"v")])
    return save.commit()


@pytest.mark.parametrize("what", ["job", "handle"])
def test_what_another_thread_waits_in_may_be_closed(folder, base, spy, what):
    """The wait ends at once, with a sentence, and before the library frees anything."""
    with two_ranks(folder) as (job, _):
        handle = written(job, 1)  # rank 1 writes nothing: it is never COMPLETE
        thread, out = in_thread(lambda: handle.wait("COMPLETE", DEADLINE_S))
        time.sleep(0.3)
        begun = time.monotonic()
        (job if what == "job" else handle).close()
        error = ended(thread, out)
        assert type(error) is HearthError and "closed" in str(error)
        assert time.monotonic() - begun < DEADLINE_S / 2
    assert "hearth_handle_close" in spy.ended and "hearth_close" in spy.ended
    assert spy.wrong == []


def test_a_save_given_up_by_another_thread(base, spy, monkeypatch):
    """It is aborted when the call that a thread is in has ended."""
    job = Job.open(base, rank=0, world=1)
    job.recover()
    save = job.begin(1, 1 << 16)
    inside, go_on = threading.Event(), threading.Event()
    real = spy._real.hearth_save_add_bytes

    def slow(*args: Any) -> Any:
        inside.set()
        assert go_on.wait(DEADLINE_S)
        return real(*args)

    monkeypatch.setattr(spy._real, "hearth_save_add_bytes", slow)
    adding = in_thread(lambda: save.add_bytes([(b"k", b"v")]))
    assert inside.wait(DEADLINE_S)
    save.abort()
    assert spy.ended == []
    with pytest.raises(HearthError, match="aborted"):
        save.seal()
    go_on.set()
    assert ended(*adding) is None
    assert spy.ended == ["hearth_save_abort"]
    job.close(keep=False)
    assert spy.wrong == []


def test_a_long_call_leaves_the_job_itself(base, spy, monkeypatch):
    """close() waits for another thread's call, and not for ever, also where the job was closed
    before; nothing is freed below the call."""
    job = Job.open(base, rank=0, world=1)
    inside, go_on = threading.Event(), threading.Event()
    real = spy._real.hearth_recover

    def slow(*args: Any) -> Any:
        inside.set()
        assert go_on.wait(DEADLINE_S)
        return real(*args)

    monkeypatch.setattr(spy._real, "hearth_recover", slow)
    recovering = in_thread(job.recover)
    assert inside.wait(DEADLINE_S)
    job.close(keep=False, wait_s=0.2)
    closing = in_thread(job.close)
    closing[0].join(0.3)
    assert closing[0].is_alive() and spy.ended == []
    go_on.set()
    assert ended(*recovering) is None and ended(*closing) is None
    assert spy.ended == ["hearth_close"]
    assert spy.wrong == []


def test_what_is_dropped_is_given_back(base, spy):
    """A checkpoint that nobody closed keeps its memory from being used again."""
    job = Job.open(base, rank=0, world=1)
    job.recover()
    written(job, 1).wait("PROTECTED", DEADLINE_S)
    job.checkpoint(1)
    gc.collect()
    assert sorted(spy.ended) == ["hearth_checkpoint_close", "hearth_handle_close",
                                 "hearth_save_commit"]
    job.close(keep=False)
    assert spy.wrong == []


def test_a_view_may_end_in_the_collector(base):
    """Which runs in any thread, also where the job's lock is held."""
    job = Job.open(base, rank=0, world=1)
    job.recover()
    written(job, 1).wait("PROTECTED", DEADLINE_S)
    with contextlib.closing(job.checkpoint(1)) as checkpoint:
        views = [checkpoint.view(checkpoint.items()[0])]

    def drop() -> str:
        with job._lock:
            views.clear()
        return "done"

    assert ended(*in_thread(drop)) == "done"
    job.close(keep=False)


def test_a_fork_while_another_thread_holds_the_locks(base):
    """Calls in the child are refused all the same, and it can end."""
    job = Job.open(base, rank=0, world=1)
    job.recover()
    handle = written(job, 1)
    handle.wait("PROTECTED", DEADLINE_S)
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with job._lock, _ffi._lock:
            held.set()
            go_on.wait(DEADLINE_S)

    holding = in_thread(hold)
    assert held.wait(DEADLINE_S)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        names = []
        for use in (handle.test, job.checkpoint, lambda: job.begin(2, 10), handle.close):
            try:
                use()
            except HearthError as error:
                names.append(error.name)
        del handle
        job.close()
        os._exit(0 if names == ["HEARTH_EFORK"] * 3 else 1)
    go_on.set()
    assert os.waitpid(child, 0)[1] == 0
    ended(*holding)
    handle.close()
    job.close(keep=False)


def test_ctrl_c_while_a_job_is_opened(base, spy, monkeypatch):
    """The job is left where the call ends, and may be opened again."""
    real = spy._real.hearth_open
    opened = threading.Event()

    def slow(*args: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.0)
        try:
            return real(*args)
        finally:
            opened.set()

    monkeypatch.setattr(spy._real, "hearth_open", slow)
    with pytest.raises(KeyboardInterrupt):
        Job.open(base, rank=0, world=1)
    assert opened.wait(DEADLINE_S)
    until = time.monotonic() + DEADLINE_S
    while (spy.ended != ["hearth_close"] or not spy.is_idle()) and time.monotonic() < until:
        time.sleep(0.05)
    assert spy.ended == ["hearth_close"] and spy.is_idle()
    monkeypatch.setattr(spy._real, "hearth_open", real)
    job = Job.open(base, rank=0, world=1)
    assert job.recover() is None
    job.close(keep=False)
