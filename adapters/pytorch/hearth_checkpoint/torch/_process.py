# SPDX-License-Identifier: Apache-2.0
"""A staged state on its way to another process of the rank: DCP's AsyncCheckpointerType.PROCESS.

    trainer                                        checkpoint process, a helper of the same rank
    StagedState ── pickled ──► the save is given ──► receive(): taken, its slot mapped, tensors
                               away, tensors go      made over it; the next save of a HearthWriter
                               as distances in it    here is that one
    the thread that sent it ends ── "over" ────────► what was not committed is given up

No byte of a tensor is copied or sent. DCP does not say at staging which executor will come, so a
staged state is a plain dict of plain tensors for everybody but the pickler that sends it.

DCP's process ends for good when it cannot read a request, and its other ranks hang when a rank
cannot send one: pack() and receive() raise nothing, an error goes along and is raised by the
writer, where DCP hands it to all ranks.

DCP gives each save a thread, and all of them one pipe: two that waited for an answer at once would
get each other's, or parts of both. So a save is sent when the thread of the one before has ended,
and in the order of staging.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import io
import itertools
import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata

from .._calls import NotCalled
from ..errors import HearthError, HearthTimeout
from ..job import Job, Save, save_bytes
from . import _copies, _jobs, _parts, _stage
from ._dumped import Dumped
from ._planned import Again


@dataclasses.dataclass(eq=False)
class DcpSave:
    """A save that DCP is in.

    name     what its id is called in the base
    common   files for all nodes, as they were when the state was copied; None: not asked yet
    call     what writes it; None: not begun
    told_later  the part has failed, and the call of the save's last part raises
    counted  no call writes it, and the engine has heard of this rank's attempt at the step
    ranks    that take part; None: all
    joined   Membership.joined when it began; "": the job was not open then
    again    what our own planner has planned for all ranks
    number   of those made in this process, in order
    """

    staged: _stage.StagedCopy | None = None
    error: BaseException | None = None
    step: int = 0
    base: str = ""
    name: str = ""
    common: dict[str, bytes] | None = None
    rank: int = 0
    use_collectives: bool = True
    call: _parts.PartCall | None = None
    told_later: bool = False
    counted: bool = False
    ranks: tuple[int, ...] | None = None
    joined: str = ""
    again: Again | None = None
    number: int = dataclasses.field(default_factory=itertools.count().__next__)

    def dumped(self, metadata: Metadata) -> Dumped:
        """Where the metadata is as it was planned, what was dumped of that plan before."""
        again = self.again
        is_planned = (again is not None and again.metadata is metadata
                      and self.call is not None and self.call.part is None)
        return again.dumped if is_planned and again.dumped is not None else Dumped()

    def is_over(self) -> bool:
        """Whether its call has written it, and finished it where that is this rank's."""
        return self.call is not None and self.call.is_over()

    def copied(self) -> None:
        """Wait until nothing is being copied out of GPU memory any more. A copy that fails
        fails the save, on all ranks."""
        copies = None if self.staged is None else self.staged.copies
        if copies is None or self.error is not None:
            return
        try:
            copies.wait()
        except HearthError as error:
            assert self.call is not None
            self.call.fail(f"{error}")
            self.error = error

    def drop(self) -> None:
        """Give it up, unless it is handed over. Twice is harmless."""
        if self.call is not None:
            self.call.drop()

    def end(self) -> None:
        """The call that writes it is over. Twice is harmless."""
        try:
            if not self.use_collectives and not self.is_over():
                self.miss()
        finally:
            self.drop()

    def miss(self) -> None:
        """The others begin this step, and this rank has not. Where DCP does not tell them, it is
        begun in vain: so it fails on all ranks at once."""
        member = _jobs.open_member(self.base)
        whole = None if self.call is None else self.call.whole
        if (member is None or member.job.off or self.counted
                or (whole is not None and whole.counted)
                or self.joined not in ("", member.joined)):  # in a new epoch all count anew
            return
        member.missed = self.step
        if self.use_collectives:
            return
        self.count_missed()
        self.counted = member.missed is None
        if whole is not None:
            whole.counted = self.counted

    def count_missed(self) -> None:
        """The step again: the attempt that failed here before it was begun counts for this rank
        too, so that all ranks are at the same one."""
        member = _jobs.open_member(self.base)
        missed = None if member is None else member.missed
        if member is None or missed is None:
            return
        member.missed = None
        if missed != self.step:
            return
        try:
            member.job.begin(missed, save_bytes([]), ranks=self.ranks).abort()
        except NotCalled:
            member.missed = missed
        except HearthError:
            pass  # one that is refused counts as well

    def refuse(self, error: BaseException) -> None:
        """Give up a part that this thread was to write, whose call raises this."""
        assert self.call is not None
        with contextlib.suppress(HearthTimeout):  # the error will do
            self.call.enter(0.0)
        self.call.fail(f"{error}")
        self.staged, self.error = None, self.error or error


def portable(error: BaseException) -> BaseException:
    """The error, or its text where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return HearthError(f"{type(error).__name__}: {error}")


class StagedState(dict):
    """A staged state. Sent to another process, its save goes along; copied, it is a plain dict.

    DCP tells a writer nothing of the state that it is to write, and several may be staged. But the
    thread that saves one goes through its items first.
    """

    def __init__(self, state: dict[str, Any], current: DcpSave,
                 pack: Callable[[dict[str, Any]], bytes]) -> None:
        super().__init__(state)
        self.current, self._pack = current, pack

    def items(self) -> Any:
        """The items; and it is noted that this thread has begun with this state."""
        _mine.begun = self.current
        return super().items()

    def like(self, state: dict[str, Any]) -> StagedState:
        """The same save, of another state made of these tensors."""
        return StagedState(state, self.current, self._pack)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _send(state: StagedState) -> Any:
    return receive, (state._pack(dict(state)),)


ForkingPickler.register(StagedState, _send)


_mine = threading.local()


def begun() -> DcpSave | None:
    """Of the staged state that this thread has begun with, once."""
    return _mine.__dict__.pop("begun", None)


# ---- the sender ----------------------------------------------------------------------------------


@dataclasses.dataclass
class _Header:
    """What the other process needs before the state itself."""

    rank: _jobs.Rank
    ticket: bytes
    places: dict[int, _stage.Place]  # as _stage.StagedCopy.places
    room: int
    common: dict[str, bytes] | None
    over: Connection


class _Pickler(ForkingPickler):
    """Staged tensors go as (distance from the data or None where empty, dtype, shape)."""

    def __init__(self, file: io.BytesIO, staged: _stage.StagedCopy) -> None:
        super().__init__(file)
        self._places, self._base = staged.places, staged.base

    def persistent_id(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or value.layout is not torch.strided:
            return None
        if not value.nbytes and value.device.type == "cpu":
            return None, value.dtype, tuple(value.shape)
        place = self._places.get(value.data_ptr() - self._base)
        if place is None or place.nbytes != value.nbytes or not value.is_contiguous():
            return None
        return value.data_ptr() - self._base, value.dtype, tuple(value.shape)


class _Sent:
    """A save that this thread sent. DCP sends from a thread of the save's own: when that ends, the
    save is over, and what nobody took or committed must not keep its slot."""

    def __init__(self, job: Job, ticket: bytes, over: Connection) -> None:
        self._job, self._ticket, self._over = job, ticket, over
        self._pid = os.getpid()

    def __del__(self) -> None:
        if sys.is_finalizing() or os.getpid() != self._pid:
            return  # a forked child has none of its parent's threads, but the save goes on
        with contextlib.suppress(OSError):  # the other process is gone
            self._over.send_bytes(b"over")
        self._over.close()
        with contextlib.suppress(HearthError):  # taken, as it should be
            self._job.take(self._ticket).abort()


class _Pipe:
    """DCP's pipe, for one thread at a time. Of the threads that wait, the one whose save was staged
    first is the next: if ranks sent saves in different orders, DCP would take different steps for
    one save."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._waiting: list[int] = []  # numbers of saves
        self._is_held = False

    def acquire(self, number: int, wait_s: float) -> bool:
        """False: it was not free within wait_s."""
        with self._free:
            self._waiting.append(number)
            try:
                if not self._free.wait_for(
                        lambda: not self._is_held and number == min(self._waiting), wait_s):
                    return False
                self._is_held = True
                return True
            finally:
                self._waiting.remove(number)
                self._free.notify_all()

    def release(self) -> None:
        with self._free:
            self._is_held = False
            self._free.notify_all()


_pipe = _Pipe()


class _PipeHold:
    """The pipe, from pack(), which may wait for it, until DCP's thread ends."""

    def __init__(self, number: int, wait_s: float) -> None:
        if not _pipe.acquire(number, wait_s):
            raise HearthTimeout("the save before is still in DCP's checkpoint process after "
                                f"{wait_s:g} s; this one was not sent there")
        self.sent: _Sent | None = None
        self._pid = os.getpid()

    def __del__(self) -> None:
        if "_pid" in self.__dict__ and self._pid == os.getpid():
            self.sent = None  # "over", before the next save is sent
            _pipe.release()


def pack(member: _jobs.Membership | None, current: DcpSave, state: dict[str, Any],
         wait_s: float) -> bytes:
    """What receive() takes, and the save goes with it; or the error. Raises HearthTimeout, and
    nothing else.

    wait_s  for the save before this one
    """
    staged, current.staged = current.staged, None
    try:
        _mine.hold = None
        _mine.hold = _PipeHold(current.number, wait_s)
    except HearthTimeout:
        if staged is not None:
            _copies.abort(staged.save)
        raise
    try:
        if current.error is not None:
            raise current.error
        if staged is None or member is None:
            raise HearthError("this staged state was written, sent or given up already")
        assert current.call is not None
        current.call.whole.taken()
        return _pack(member, staged, current.common, state)
    except BaseException as error:
        if staged is not None:
            _copies.abort(staged.save)
        return bytes(ForkingPickler.dumps(portable(error)))


def _pack(member: _jobs.Membership, staged: _stage.StagedCopy, common: dict[str, bytes] | None,
          state: dict[str, Any]) -> bytes:
    body = io.BytesIO()
    _Pickler(body, staged).dump(state)
    theirs, ours = multiprocessing.Pipe(duplex=False)
    if staged.copies is not None:
        staged.copies.wait()
    ticket = staged.save.give()
    _mine.hold.sent = _Sent(member.job, ticket, ours)
    with theirs:
        header = ForkingPickler.dumps(
            _Header(member.rank, ticket, staged.places, staged.room, common, theirs))
    return bytes(header) + body.getvalue()


# ---- the receiver --------------------------------------------------------------------------------

_arrived: DcpSave | None = None


class _Unpickler(pickle.Unpickler):
    """Tensors over the data of a save that was taken."""

    def __init__(self, file: io.BytesIO, save: Save) -> None:
        super().__init__(file)
        base, size = save.data()
        self._memory = memoryview((ctypes.c_char * size).from_address(base))

    def persistent_load(self, pid: Any) -> torch.Tensor:
        return _stage.tensor_over(self._memory, *pid)


def receive(data: bytes) -> dict[str, Any]:
    """The state that pack() sent. Its save, or what went wrong, is for arrived(); it raises
    nothing but KeyboardInterrupt."""
    global _arrived
    if _arrived is not None:
        _arrived.drop()
    _arrived = DcpSave()
    try:
        return _receive(io.BytesIO(data), _arrived)
    except BaseException as error:
        _arrived.drop()
        if isinstance(error, KeyboardInterrupt):
            raise
        _arrived = DcpSave(error=portable(error))
        return {}


def _receive(stream: io.BytesIO, current: DcpSave) -> dict[str, Any]:
    header = pickle.load(stream)
    if isinstance(header, BaseException):
        raise header
    threading.Thread(target=_watch, args=(header.over, current), name="hearth-over",
                     daemon=True).start()
    current.base, current.common = header.rank.base, header.common
    job = _jobs.assist(header.rank).job
    save = job.take(header.ticket)
    call = current.call = _parts.alone(header.rank.base)
    call.object = _stage.object_name(job.rank, 0)
    call.whole.adopt(save, call.object)
    call.span = save.data()
    current.staged = _stage.StagedCopy(dict, save, call.span[0], header.places, header.room)
    return _Unpickler(stream, save).load()


def _watch(over: Connection, current: DcpSave) -> None:
    """Give the save up when DCP's call that sent it is over, unless it was committed."""
    with over:
        try:
            over.recv_bytes()
        except (EOFError, OSError):
            return  # the sender is gone; a save that can still be finished may be
    current.end()


def waits() -> bool:
    """Whether a save came that no writer has begun with yet."""
    return _arrived is not None


def arrived() -> DcpSave | None:
    """The save that came with the last state, once."""
    global _arrived
    current, _arrived = _arrived, None
    return current
