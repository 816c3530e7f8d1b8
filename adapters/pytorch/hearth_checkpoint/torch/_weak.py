# SPDX-License-Identifier: Apache-2.0
"""on_error="warn": a save that fails is counted and said in the log, and training goes on. The
trainer's thread waits for its engine at most blocked_ms in such a save.

protection() says what there is to go back to, and how old it is.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

from torch.distributed.checkpoint.api import CheckpointException

from .. import _calls, _ffi
from ..errors import HearthBusy, HearthError
from ..job import KeptSave
from . import _jobs

ON_ERROR = ("raise", "warn")
BLOCKED_MS = 2000
SAY_EVERY_S = 60.0
_log = logging.getLogger("hearth_checkpoint")
_lock = threading.Lock()
_watches: dict[str | None, _Watch] = {}


@dataclass(frozen=True)
class Protection:
    """What a job could go back to now, as this process knows it.

    step      of the newest save that is PROTECTED; None: there is none
    age_s     since it was
    failures  of saves with on_error="warn" in this process
    in_a_row  of them, since the last save that went well
    error     text of the last of those; None: the last save went well
    level     of the step: "PROTECTED", or "DEGRADED" where some object has fewer copies than asked
    copies    that are asked for of each object, beside the owner's own
    mend      what makes it PROTECTED again; None: it is
    """

    step: int | None
    age_s: float | None
    failures: int
    in_a_row: int
    error: str | None
    level: str | None = None
    copies: int | None = None
    mend: str | None = None

    @property
    def text(self) -> str:
        """In one line, for logs."""
        if self.step is None:
            return "no save is PROTECTED"
        more = "" if self.mend is None else f" and DEGRADED: {self.mend}"
        return f"the newest that is PROTECTED is step {self.step}, {self.age_s:.0f} s old{more}"


_MEND = ("some object of it has fewer than the {copies} copies in other failure domains that are "
         "asked for; the engines make them as soon as a node of another failure domain is in the "
         "job and has room (`hearth nodes` shows which nodes are)")
_FEWER = ", or ask for fewer with copies="  # fewer than one is none


class _Watch:
    """The saves of a base in this process."""

    def __init__(self) -> None:
        self.failures = self.in_a_row = self.unsaid = 0
        self.error: str | None = None  # an exception would keep its frames, and their save's room
        self.said: float | None = None  # time.monotonic()
        self.degraded: float | None = None  # the same: when that was said


def _watch(base: str | None) -> _Watch:
    return _watches.setdefault(base, _Watch())


def _base(base: str | os.PathLike | None) -> str | None:
    try:
        return _jobs.base_of(base)
    except ValueError:
        return None


def protection(base: str | os.PathLike | None = None) -> Protection:
    """Of the job of `base`. Not collective; of a job that is not open here the failures alone.
    Where this node's engine does not answer within two seconds, what it said last."""
    known = _base(base)
    newest = _newest(known)
    with _lock:
        watch = _watch(known)
        failed = watch.failures, watch.in_a_row, watch.error
    if newest is None:
        return Protection(None, None, *failed)
    age_s = max(0.0, time.time() - newest.since)
    if not newest.degraded:
        return Protection(newest.step, age_s, *failed, "PROTECTED", newest.copies)
    return Protection(newest.step, age_s, *failed, "DEGRADED", newest.copies,
                      _MEND.format(copies=newest.copies) + (_FEWER if newest.copies > 1 else ""))


def _newest(base: str | None) -> KeptSave | None:
    member = _jobs.open_member(base) if base is not None else None
    if member is None:
        return None
    try:
        with _calls.at_most(BLOCKED_MS / 1000):
            kept = member.job.kept()
    except HearthError:  # the engine is gone, or stands still: what was known last
        kept = []
    if kept:
        member.newest = kept[0]
    return member.newest


def _short(error: BaseException) -> str:
    """In one line: a CheckpointException's text is a traceback for each rank."""
    if isinstance(error, CheckpointException):
        return "; ".join(f"rank {rank}: {failed[0]}"
                         for rank, failed in sorted(error.failures.items()))
    return f"{error}" or type(error).__name__


def _went_well(base: str | None) -> None:
    with _lock:
        watch = _watch(base)
        before, watch.in_a_row, watch.unsaid = watch.in_a_row, 0, 0
        watch.error = watch.said = None
    if before:
        _log.warning("hearth: %s: saving works again, after %d that failed", base, before)
    _say_degraded(base)


def _say_degraded(base: str | None) -> None:
    """Once a minute as long as it is."""
    held, now = protection(base), time.monotonic()
    with _lock:
        watch = _watch(base)
        if held.mend is None:
            watch.degraded = None
            return
        if watch.degraded is not None and now - watch.degraded < SAY_EVERY_S:
            return
        watch.degraded = now
    _log.warning("hearth: %s: %s", base, held.text)


def _failed(base: str | None, error: BaseException) -> None:
    with _lock:
        watch = _watch(base)
        watch.failures += 1
        watch.in_a_row += 1
        watch.unsaid += 1
        watch.error = _short(error)
        now = time.monotonic()
        if watch.said is not None and now - watch.said < SAY_EVERY_S:
            return
        watch.said, count, watch.unsaid = now, watch.unsaid, 0
    there = protection(base).text
    _log.warning("hearth: %s: %s failed, training goes on (on_error=\"warn\"); %s: %s", base,
                 "a save" if count == 1 else f"{count} saves", there, watch.error)


def _is_of_the_save(error: BaseException) -> bool:
    """Not Ctrl-C, nor the interpreter's end."""
    return isinstance(error, (Exception, CheckpointException))


def check(on_error: str) -> None:
    """ValueError for what is none of the two."""
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error {on_error!r} is none of {', '.join(ON_ERROR)}")


def patience(on_error: str, blocked_ms: int = BLOCKED_MS) -> AbstractContextManager[None]:
    """Around what the trainer's thread does for a save. ValueError for a time that is none."""
    if not 0 < blocked_ms <= _ffi.DEADLINE_MAX_MS:
        raise ValueError(
            f"blocked_ms {blocked_ms!r}: milliseconds from 1 to {_ffi.DEADLINE_MAX_MS}")
    return nullcontext() if on_error == "raise" else _calls.patience(blocked_ms / 1000)


def call(base: str | os.PathLike | None, on_error: str, save: Callable[[], Any],
         ends: bool = True, blocked_ms: int = BLOCKED_MS) -> Any:
    """save(), whose result may be a future, or have one of the upload. With "warn" a failure of any
    gives None.

    ends        False: it writes a part of a save, which has not gone well before the last one has
    blocked_ms  with "warn": that this thread waits for its engine, in all that it does here
    """
    check(on_error)
    with patience(on_error, blocked_ms):
        return save() if on_error == "raise" else _called(base, save, ends)


def _called(base: str | os.PathLike | None, save: Callable[[], Any], ends: bool) -> Any:
    try:
        result = save()
    except BaseException as error:
        if not _is_of_the_save(error):
            raise
        _failed(_base(base), error)
        return None
    if isinstance(result, concurrent.futures.Future):
        return _softened(base, result, ends)
    if hasattr(result, "upload_completion"):  # an AsyncSaveResponse, which torch 2.8 lacks
        return dataclasses.replace(
            result, upload_completion=_softened(base, result.upload_completion, ends),
            staging_completion=_softened(base, result.staging_completion, ends=False, counts=False))
    if ends:
        _went_well(_base(base))
    return result


def _softened(base: str | os.PathLike | None,
              future: concurrent.futures.Future[Any], ends: bool,
              counts: bool = True) -> concurrent.futures.Future[Any]:
    """A future of None where that one fails. counts False: another tells of the same failure."""
    out: concurrent.futures.Future[Any] = concurrent.futures.Future()
    out.set_running_or_notify_cancel()

    def done(ended: concurrent.futures.Future[Any]) -> None:
        error = ended.exception()
        if error is None:
            if ends:
                _went_well(_base(base))
            out.set_result(ended.result())
        elif _is_of_the_save(error):
            if counts:
                _failed(_base(base), error)
            out.set_result(None)
        else:
            out.set_exception(error)

    future.add_done_callback(done)
    return out


def none_yet() -> concurrent.futures.Future[None]:
    """What an asynchronous save gives that failed before it began."""
    out: concurrent.futures.Future[None] = concurrent.futures.Future()
    out.set_result(None)
    return out


# ---- one after another ---------------------------------------------------------------------------


class Saves:
    """The asynchronous saves of one job, one after another.

    on_error  "warn": a save that fails is counted and said in the log (protection())
    """

    def __init__(self, base: str | os.PathLike, on_error: str) -> None:
        check(on_error)
        self.base, self._on_error = _jobs.base_of(base), on_error
        self._last: concurrent.futures.Future[Any] | None = None

    def _is_over(self) -> bool:
        """The save before has ended, and raises here what it raised. With "warn" it is waited for
        as long as for the engine; False: it goes on."""
        if self._last is not None and self._on_error == "warn" and not concurrent.futures.wait(
                [self._last], BLOCKED_MS / 1000).done:
            return False
        self.wait()
        return True

    def _next(self, save: Callable[[Callable[[], NoReturn] | None], Any]
              ) -> concurrent.futures.Future[Any]:
        """save(None) after the save before; save(skipped) where that goes on, to be called in the
        place of what makes the state."""
        skip = None if self._is_over() else skipped
        future = call(self.base, self._on_error, lambda: save(skip))
        self._last = future if future is not None else none_yet()
        return self._last

    def wait(self) -> None:
        """Until the last save has ended. Raises what it raised, once."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def ended(self) -> None:
        """The same, and what it raised is raised by the next save."""
        if self._last is not None:
            concurrent.futures.wait([self._last])


def skipped() -> NoReturn:
    """In the place of a state that is not copied. All ranks hear of it."""
    raise HearthBusy(f"the save before has not ended within {BLOCKED_MS / 1000:g} s, and this one "
                     "is skipped", -109, "HEARTH_EBUSY")
