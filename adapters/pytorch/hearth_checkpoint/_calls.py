# SPDX-License-Identifier: Apache-2.0
"""Calls of the library that may wait: Ctrl-C interrupts the wait of the main thread, and a thread
with patience returns when its patience is over, whatever the engine does.

A call that is given up goes on in a thread of its own, and its result is closed when it ends. Until
then a thread with patience makes no other call of the job: the engine would not answer that call
either, and training would stand still once more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from . import errors

if TYPE_CHECKING:
    from .job import Job

SLICE_S = 0.1  # after which a wait looks for Ctrl-C
_T = TypeVar("_T")


class NotCalled(errors.HearthTimeout):
    """The library was not called: the engine has heard nothing of it."""


class _Mine(threading.local):
    left_s: float | None = None


_mine = _Mine()


@contextmanager
def patience(wait_s: float | None) -> Iterator[None]:
    """What all calls of this thread may wait together for the engine; None: each as long as it
    would."""
    before, _mine.left_s = _mine.left_s, wait_s
    try:
        yield
    finally:
        _mine.left_s = before


@contextmanager
def at_most(wait_s: float) -> Iterator[None]:
    """The same, and not more than is left."""
    with patience(limited(wait_s)):
        yield


def has_patience() -> bool:
    """Whether the calls of this thread are bounded together."""
    return _mine.left_s is not None


def limited(wait_s: float) -> float:
    """A wait of this thread, by what is left."""
    return wait_s if _mine.left_s is None else min(wait_s, _mine.left_s)


def spend(seconds: float) -> None:
    """This thread has waited so long for the engine."""
    if _mine.left_s is not None:
        _mine.left_s = max(0.0, _mine.left_s - seconds)


def _may_call(job: Job | None) -> None:
    if _mine.left_s is None or job is None:
        return
    last = job.unanswered
    if last is not None and last.is_alive():
        raise NotCalled(f"this node's engine of {job.base} has not answered an earlier call yet, "
                        "and this one was not made: `hearth status` shows its state", -202,
                        "HEARTH_ETIMEOUT")
    if not _mine.left_s:
        raise NotCalled(f"this node's engine of {job.base} has used up the time that the caller "
                        "waits for it (blocked_ms)", -202, "HEARTH_ETIMEOUT")


def _given_up(job: Job | None, wait_s: float) -> errors.HearthTimeout:
    of = f" of {job.base}" if job is not None else ""
    return errors.HearthTimeout(
        f"this node's engine{of} has not answered within {wait_s:.1f} s (blocked_ms): it is "
        "stopped, makes memory, has no room, or waits for a peer; `hearth status` shows which",
        -202, "HEARTH_ETIMEOUT")


def interruptible(work: Callable[[], _T], job: Job | None = None) -> _T:
    """Run a long C call so that the main thread hears Ctrl-C meanwhile."""
    _may_call(job)
    if not has_patience() and threading.current_thread() is not threading.main_thread():
        return work()
    result: list[Any] = []
    failure: list[BaseException] = []
    wanted = True

    def run() -> None:
        try:
            value = work()
            if wanted:  # else it is given up here, whoever keeps the caller's traceback
                result.append(value)
        except BaseException as error:  # handed to the caller below
            failure.append(error)

    thread = threading.Thread(target=run, name="hearth-call", daemon=True)
    begun, most_s = time.monotonic(), _mine.left_s
    thread.start()
    try:
        while thread.is_alive():
            waited = time.monotonic() - begun
            if most_s is not None and waited >= most_s:
                if job is not None:
                    job.unanswered = thread
                raise _given_up(job, most_s)
            thread.join(SLICE_S if most_s is None else min(SLICE_S, most_s - waited))
    except BaseException:
        wanted = False
        result.clear()
        raise
    finally:
        spend(time.monotonic() - begun)
    try:
        if failure:
            raise failure[0]
    finally:
        failure.clear()  # the error's traceback has this frame, and so the error would have itself
    return result[0]


def patient(work: Callable[[], _T], job: Job) -> _T:
    """A call that may wait a little, and need not hear Ctrl-C."""
    return interruptible(work, job) if has_patience() else work()
